import { defineConfig } from 'vitest/config'

export default defineConfig({
  root: import.meta.dirname,
  test: {
    include: ['*.e2e.ts'],
    // One story after the other: they share nodes, and a browser.
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 60_000,
    bail: 1,
  },
})
