// Names of iSCSI, as in the API.

/** The target of a volume when none is named, as the API makes it: the volume's name in the letters that iSCSI names may have. */
export function defaultTarget(volume: string): string {
  return `iqn.2026-11.io.ursa:${volume.toLowerCase().replaceAll('_', '-')}`
}

/** What such a name looks like. */
export const ISCSI_NAME_HINT = 'iqn.YYYY-MM.reversed.domain:name, eui. with 16 hex digits, or naa. with 16 or 32 hex digits; lowercase only'

/** Bytes of a name (RFC 7143 4.2.7). */
const NAME_MAX = 223

/** What the API takes for a target or an initiator: a name in its normal form, in small letters. */
export function isIscsiName(name: string): boolean {
  return name.length <= NAME_MAX && /^(iqn\.\d{4}-(0[1-9]|1[0-2])\.[a-z0-9._-][a-z0-9.:_-]*|eui\.[0-9a-f]{16}|naa\.[0-9a-f]{16}([0-9a-f]{16})?)$/.test(name)
}
