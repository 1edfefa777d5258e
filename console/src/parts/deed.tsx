// Actions: a button that may be forbidden, a dialog that says what will happen, and the result.

import { Button, type ButtonProps, Group, Modal, Stack, Text, TextInput, Tooltip } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { type FormEvent, type ReactNode, useState } from 'react'
import { type Deed, useForbidden } from '../api/access'
import { lookAgain } from '../api/queries'
import { useFocusBack } from './focus'
import { Paste } from './Paste'
import { ProblemAlert } from './Problem'

/** Runs one action at a time, and keeps its error. */
export function useDoing(): {
  busy: boolean
  error: unknown
  run: (deed: () => Promise<unknown>, done?: string) => Promise<boolean>
  forget: () => void
} {
  const [busy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  async function run(deed: () => Promise<unknown>, done?: string): Promise<boolean> {
    setBusy(true)
    setError(undefined)
    try {
      await deed()
      if (done) notifications.show({ message: done, color: 'green' })
      return true
    } catch (problem) {
      setError(problem)
      return false
    } finally {
      setBusy(false)
      void lookAgain()
    }
  }
  return { busy, error, run, forget: () => setError(undefined) }
}

/** A button for an action that needs a permission: without it, disabled with the reason. */
export function DeedButton({ deed = 'change', because, children, onClick, href, ...button }: {
  deed?: Deed
  /** Why the action is not possible now. */
  because?: string
  children: ReactNode
  onClick?: () => void
  href?: string
} & ButtonProps) {
  const forbidden = useForbidden(deed)
  const why = forbidden ?? because
  if (why !== undefined) {
    return (
      <Tooltip label={why} multiline maw={320} events={{ hover: true, focus: true, touch: true }}>
        <Button {...button} data-disabled aria-disabled title={why} onClick={(event) => event.preventDefault()}>
          {children}
        </Button>
      </Tooltip>
    )
  }
  if (href !== undefined) {
    return (
      <Button {...button} component="a" href={href}>
        {children}
      </Button>
    )
  }
  return (
    <Button {...button} onClick={onClick}>
      {children}
    </Button>
  )
}

/** A dialog with its fields, the equivalent command, and a button. */
export function Ask({ opened, close, title, children, command, act, label, danger = false, typed, done, ready = true, stays = false, dismiss = 'Cancel' }: {
  opened: boolean
  close: () => void
  title: string
  children?: ReactNode
  /** The equivalent command. */
  command?: string
  act: () => Promise<unknown>
  label: string
  danger?: boolean
  /** What the user must type first, for actions that cannot be undone. */
  typed?: string
  /** The message when it is done. */
  done?: string
  ready?: boolean
  /** Whether it stays open when done, to show the result. */
  stays?: boolean
  /** The label of the button that closes it. */
  dismiss?: string
}) {
  const { busy, error, run, forget } = useDoing()
  const [text, setText] = useState('')
  useFocusBack(opened)
  const may = ready && (typed === undefined || text === typed)
  function leave() {
    if (busy) return
    setText('')
    forget()
    close()
  }
  async function submit(event: FormEvent) {
    event.preventDefault()
    if (may && (await run(act, done)) && !stays) leave()
  }
  return (
    <Modal opened={opened} onClose={leave} returnFocus={false} title={<b>{title}</b>} size="lg" closeButtonProps={{ 'aria-label': 'Close' }}>
      <form onSubmit={(event) => void submit(event)}>
        <Stack gap="sm">
          {children}
          {typed !== undefined && (
            <TextInput
              label={
                <>
                  To confirm, type <code>{typed}</code>
                </>
              }
              value={text}
              onChange={(event) => setText(event.currentTarget.value)}
              autoComplete="off"
            />
          )}
          {command && <Paste text={command} label="Equivalent command" />}
          {error !== undefined && <ProblemAlert error={error} change="done" />}
          <Group justify="flex-end">
            <Button variant="default" onClick={leave} disabled={busy}>
              {dismiss}
            </Button>
            <Button type="submit" color={danger ? 'red' : undefined} loading={busy} disabled={!may}>
              {label}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  )
}

export function Said({ children }: { children: ReactNode }) {
  return <Text size="sm">{children}</Text>
}
