// The few icons that we need, drawn with lines in a square of 24 by 24.

const PATHS = {
  overview: 'M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-4H4zM14 8h6V4h-6z',
  volumes: 'M4 7c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 7v10c0 1.700 3.600 3 8 3s8-1.300 8-3V7M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3',
  snapshots: 'M4 8h4l1.500-3h5L16 8h4v11H4zM12 10a3.200 3.200 0 1 0 .1 0',
  schedules: 'M12 4a8 8 0 1 0 .1 0M12 8v4.500l3 2',
  topology: 'M12 8V4M12 4a1 1 0 1 0 0 .1M12 8l-6 8M12 8l6 8M6 16a2 2 0 1 0 .1 0M18 16a2 2 0 1 0 .1 0M12 8a2 2 0 1 0 .1 0',
  pools: 'M4 5h16v5H4zM4 14h16v5H4zM7.500 7.500h.1M7.500 16.500h.1',
  hosts: 'M4 5h16v10H4zM9 19h6M12 15v4',
  nodes: 'M6 3h12v18H6zM9 7h6M9 11h6M12 17h.1',
  jobs: 'M20 11a8 8 0 1 0-.5 4M20 5v6h-6',
  events: 'M5 5h14M5 10h14M5 15h9M5 20h6',
  users: 'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8M3 21v-2a5 5 0 0 1 5-5h2a5 5 0 0 1 5 5v2M16 4a4 4 0 0 1 0 7M21 21v-2a5 5 0 0 0-3-4.500',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600L19 19M19 5l-1.400 1.400M6.400 17.600L5 19',
  moon: 'M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z',
  screen: 'M3 5h18v11H3zM8 20h8M12 16v4',
  ok: 'M5 12.500l4.500 4.500L19 7.500',
  info: 'M12 3a9 9 0 1 0 .1 0M12 11v6M12 7.500h.1',
  working: 'M20 11a8 8 0 1 0-.5 4M20 5v6h-6',
  warning: 'M12 4l9 16H3zM12 10v4M12 17h.1',
  critical: 'M8 3h8l5 5v8l-5 5H8l-5-5V8zM12 8v5M12 16h.1',
  off: 'M6 12h12',
  copy: 'M8 8h12v12H8zM16 8V4H4v12h4',
  plus: 'M12 5v14M5 12h14',
  out: 'M14 4H5v16h9M10 12h11M18 9l3 3-3 3',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 18 }: { name: IconName; size?: number }) {
  return (
    <svg
      aria-hidden
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.8"
      strokeLinecap="round"
      strokeLinejoin="round"
      style={{ flexShrink: 0, display: 'block' }}
    >
      <path d={PATHS[name]} />
    </svg>
  )
}
