// Keyboard focus: when the focused element disappears, keyboard users need not start at the top of the page
// again.

import { type RefObject, useEffect, useRef } from 'react'

/** The element that gets the focus back can take it once the dialog is gone. */
const LEFT_MS = 20

/** Focuses the content of the screen; the next Tab continues from there. */
export function focusContent() {
  document.querySelector('main')?.focus({ preventScroll: true })
}

/** Returns the focus to where it was before the dialog opened, or to the content if that element is gone. */
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

/** The element that opened the dialog. For a menu entry, which is gone by then: the button of the menu. */
function openerOf(element: Element | null): HTMLElement | undefined {
  const button = element?.closest('[role=menu]')?.getAttribute('aria-labelledby')
  const opener = button ? document.getElementById(button) : element
  return opener instanceof HTMLElement && opener !== document.body ? opener : undefined
}

/** When `step` changes, focuses the first field of the new step, or the step itself if it has none. */
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
