import { defineConfig } from 'vitest/config'

export default defineConfig({
  root: import.meta.dirname,
  test: {
    include: ['*.e2e.ts'],
    // One test after the other: they share nodes, and a browser.
    fileParallelism: false,
    // Waits have deadlines of their own (PATIENCE_MS). These are for whole tests, on machines several times
    // slower than ours.
    testTimeout: 300_000,
    hookTimeout: 180_000,
    bail: 1,
  },
})
