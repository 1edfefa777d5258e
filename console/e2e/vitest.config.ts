import { defineConfig } from 'vitest/config'

export default defineConfig({
  root: import.meta.dirname,
  test: {
    include: ['*.e2e.ts'],
    // One story after the other: they share nodes, and a browser.
    fileParallelism: false,
    // What is waited for has deadlines of its own (PATIENCE_MS): these are for whole stories, on machines
    // several times slower than ours.
    testTimeout: 300_000,
    hookTimeout: 180_000,
    bail: 1,
  },
})
