import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

// A node to work against while the console is changed: `URSA_API=http://127.0.0.1:3280 npm run dev`.
const node = process.env['URSA_API'] ?? 'http://127.0.0.1:3280'
const toNode = { target: node, changeOrigin: true, headers: { origin: node } }

export default defineConfig({
  // The node serves it at its root; relative, so that it also works behind a path.
  base: './',
  plugins: [react()],
  build: {
    target: 'es2022',
    // One script and one style sheet: the node is near, and there is nothing to gain from more.
    cssCodeSplit: false,
    modulePreload: false,
    chunkSizeWarningLimit: 1500,
    // Nothing of it becomes a data: URL, which the content security policy would have to allow.
    assetsInlineLimit: 0,
  },
  server: { proxy: { '/v1': toNode } },
})
