// Short names for what docs/openapi.json calls its schemas.

import type { components } from './schema'

type Schemas = components['schemas']

export type Change = Schemas['Change']
export type ClusterNode = Schemas['ClusterNode']
export type CopyState = Schemas['CopyState']
export type CopySync = Schemas['CopySync']
export type Event = Schemas['Event']
export type Host = Schemas['Host']
export type HostCreate = Schemas['HostCreate']
export type Job = Schemas['Job']
export type Loss = Schemas['Loss']
export type LossOutcome = Schemas['LossOutcome']
export type Missing = Schemas['Missing']
export type Node = Schemas['Node']
export type Pool = Schemas['Pool']
export type PoolDisk = Schemas['PoolDisk']
export type Problem = Schemas['Problem']
export type Session = Schemas['Session']
export type Strategy = Schemas['Strategy']
export type Target = Schemas['Target']
export type Verification = Schemas['Verification']
export type Volume = Schemas['Volume']
export type VolumeCopy = Schemas['VolumeCopy']
export type VolumeCreate = Schemas['VolumeCreate']
export type VolumeKind = Schemas['VolumeKind']
