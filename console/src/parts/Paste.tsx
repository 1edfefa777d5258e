import { Box, Button, Group, ScrollArea, Text } from '@mantine/core'
import { useState } from 'react'
import { Icon } from './Icon'

/** Text to paste elsewhere, with a copy button. */
export function Paste({ text, label, maxHeight }: { text: string; label?: string; maxHeight?: number }) {
  const [copied, setCopied] = useState<'yes' | 'no'>()
  async function copy() {
    setCopied((await toClipboard(text)) ? 'yes' : 'no')
    setTimeout(() => setCopied(undefined), 2500)
  }
  return (
    <Box className="paste">
      <Group justify="space-between" gap="xs" mb={4} wrap="nowrap">
        <Text size="xs" c="dimmed" style={{ overflowWrap: 'anywhere' }}>
          {label}
        </Text>
        <Button style={{ flexShrink: 0 }} size="compact-xs" variant="subtle" leftSection={<Icon name="copy" size={13} />} onClick={() => void copy()}>
          {copied === 'yes' ? 'Copied' : copied === 'no' ? 'Select the text and press Ctrl+C' : 'Copy'}
        </Button>
      </Group>
      <ScrollArea.Autosize mah={maxHeight ?? 400} type="auto" viewportProps={{ tabIndex: 0 }}>
        <pre>{text}</pre>
      </ScrollArea.Autosize>
    </Box>
  )
}

/** Copies text. Without TLS browsers offer no clipboard API, but `execCommand` still works. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const area = document.createElement('textarea')
    area.value = text
    document.body.append(area)
    area.select()
    const done = document.execCommand('copy')
    area.remove()
    return done
  }
}
