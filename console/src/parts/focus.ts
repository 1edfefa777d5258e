// Keyboard focus: when the focused element disappears, keyboard users need not start at the top of the page
// again.

import { type RefObject, useEffect, useRef } from 'react'

/** What is brought back is there when the dialogue has left. */
const LEFT_MS = 20

/** The content of the screen, from which the next Tab goes on. */
export function focusContent() {
  document.querySelector('main')?.focus({ preventScroll: true })
}

/** Brings the focus back to where it was before a dialogue was opened; to the content where that is gone. */
export function useFocusBack(opened: boolean) {
  useEffect(() => {
    if (!opened) return undefined
    const before = openerOf(document.activeElement)
    return () => {
      setTimeout(() => {
        const now = document.activeElement
        // The user has moved the focus elsewhere already.
        if (now && now !== document.body && !now.closest('[role=dialog], [role=menu]')) return
        if (before?.isConnected) before.focus()
        else focusContent()
      }, LEFT_MS)
    }
  }, [opened])
}

/** What a dialogue was opened by: of an entry of a menu, which is gone by the end, the menu's button. */
function openerOf(element: Element | null): HTMLElement | undefined {
  const button = element?.closest('[role=menu]')?.getAttribute('aria-labelledby')
  const opener = button ? document.getElementById(button) : element
  return opener instanceof HTMLElement && opener !== document.body ? opener : undefined
}

/** When `step` changes the focus goes to the first field of what is shown then, or to that as a whole. */
export function useFocusOfStep<T extends HTMLElement>(step: number): RefObject<T | null> {
  const shown = useRef<T>(null)
  const before = useRef(step)
  useEffect(() => {
    if (before.current === step) return
    before.current = step
    const first = shown.current?.querySelector<HTMLInputElement>('input:not([type=hidden]):not(:disabled)')
    const chosen = first?.type === 'radio' ? shown.current?.querySelector<HTMLInputElement>(`input[name="${CSS.escape(first.name)}"]:checked`) : undefined
    ;(chosen ?? first ?? shown.current)?.focus({ preventScroll: !first })
  }, [step])
  return shown
}
