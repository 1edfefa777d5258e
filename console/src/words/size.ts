// Sizes, rates and times as text, and sizes from text. Powers of 1024, as on the command line.

const UNITS = ['', 'K', 'M', 'G', 'T', 'P', 'E']

/** `1.5G`; three digits at most. */
export function size(bytes: number): string {
  let value = bytes
  let unit = 0
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024
    unit += 1
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1
  const text = value.toFixed(digits)
  return `${text.endsWith('.0') ? text.slice(0, -2) : text}${UNITS[unit]}${unit === 0 ? 'B' : 'iB'}`
}

/** The bytes of `10G`, `512M`, `1.5T` or a plain number; undefined for any other text. */
export function parseSize(text: string): number | undefined {
  const match = /^\s*(\d+(?:\.\d+)?)\s*([KMGTP]?)(?:i?B)?\s*$/i.exec(text)
  if (!match) return undefined
  const unit = UNITS.indexOf((match[2] ?? '').toUpperCase())
  const bytes = Number(match[1]) * 1024 ** unit
  return Number.isSafeInteger(Math.round(bytes)) && bytes >= 1 ? Math.round(bytes) : undefined
}

/** The exact size for `ursa volume create --size`: `10G`, or bytes if no unit fits. */
export function exactSize(bytes: number): string {
  for (let unit = 4; unit > 0; unit -= 1) {
    if (bytes % 1024 ** unit === 0) return `${bytes / 1024 ** unit}${UNITS[unit]}`
  }
  return String(bytes)
}

export function rate(bytesPerSecond: number): string {
  return `${size(bytesPerSecond)}/s`
}

/** `12.3k`: a number per second. */
export function count(value: number): string {
  if (value >= 999_500) return `${(value / 1e6).toFixed(value >= 99.5e6 ? 0 : 1)}M`
  if (value >= 9_995) return `${(value / 1e3).toFixed(value >= 99_500 ? 0 : 1)}k`
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1)
}

/** `3 min 5 s`, `2 h 5 min`, `4 d 3 h`: a duration. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds))
  if (whole < 60) return `${whole} s`
  if (whole < 3600) {
    const rest = whole % 60
    return whole < 600 && rest ? `${Math.floor(whole / 60)} min ${rest} s` : `${Math.floor(whole / 60)} min`
  }
  if (whole < 86_400) {
    const minutes = Math.floor((whole % 3600) / 60)
    return minutes ? `${Math.floor(whole / 3600)} h ${minutes} min` : `${Math.floor(whole / 3600)} h`
  }
  const hours = Math.floor((whole % 86_400) / 3600)
  return hours && whole < 10 * 86_400 ? `${Math.floor(whole / 86_400)} d ${hours} h` : `${Math.floor(whole / 86_400)} d`
}

/** `0.12 ms`, `35 µs`, `1.2 s`: a latency. */
export function latency(seconds: number): string {
  if (seconds <= 0) return '0 s'
  if (seconds >= 1) return `${seconds.toFixed(seconds >= 10 ? 0 : 1)} s`
  if (seconds >= 1e-3) return `${(seconds * 1e3).toFixed(seconds >= 0.01 ? 0 : 1)} ms`
  return `${Math.round(seconds * 1e6)} µs`
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : '–'
}

/** `1 volume`, `3 volumes`. */
export function plural(many: number, one: string, several = `${one}s`): string {
  return `${many} ${many === 1 ? one : several}`
}

/** A time in the local time zone, with the date unless it is today. */
export function moment(at: number): string {
  const date = new Date(at * 1000)
  return date.toDateString() === new Date().toDateString() ? date.toLocaleTimeString() : date.toLocaleString()
}
