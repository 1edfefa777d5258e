// Names of iSCSI, as in the API.

/**
 * The default target of a volume, as in the API: the volume's name in the characters that iSCSI names allow.
 */
export function defaultTarget(volume: string): string {
  return `iqn.2026-11.io.ursa:${volume.toLowerCase().replaceAll('_', '-')}`
}

/** The format of an iSCSI name. */
export const ISCSI_NAME_HINT = 'iqn.YYYY-MM.reversed.domain:name, eui. with 16 hex digits, or naa. with 16 or 32 hex digits; lowercase only'

/** Maximum length of a name in bytes (RFC 7143 4.2.7). */
const NAME_MAX = 223

/** Whether the API accepts this name of a target or initiator: normalized and in lower case. */
export function isIscsiName(name: string): boolean {
  return name.length <= NAME_MAX && /^(iqn\.\d{4}-(0[1-9]|1[0-2])\.[a-z0-9._-][a-z0-9.:_-]*|eui\.[0-9a-f]{16}|naa\.[0-9a-f]{16}([0-9a-f]{16})?)$/.test(name)
}
