import {
  ActionIcon,
  AppShell,
  Burger,
  Button,
  Group,
  Menu,
  NavLink,
  ScrollArea,
  Text,
  useMantineColorScheme,
} from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { useEffect, useRef } from 'react'
import { useMe } from './api/access'
import { json } from './api/client'
import { queries, useNode } from './api/queries'
import { focusContent } from './parts/focus'
import { Icon, type IconName } from './parts/Icon'
import { State } from './parts/State'
import { useRoute } from './route'
import { screenAt } from './screens'
import { useHealth } from './screens/useHealth'
import { problemsIn, worstTone } from './words/findings'
import { plural } from './words/size'

interface Place {
  path: string
  name: string
  icon: IconName
}

const PLACES: Place[] = [
  { path: '', name: 'Overview', icon: 'overview' },
  { path: 'volumes', name: 'Volumes', icon: 'volumes' },
  { path: 'snapshots', name: 'Snapshots', icon: 'snapshots' },
  { path: 'schedules', name: 'Schedules', icon: 'schedules' },
  { path: 'topology', name: 'Topology', icon: 'topology' },
  { path: 'pools', name: 'Pools and disks', icon: 'pools' },
  { path: 'hosts', name: 'Hosts and access', icon: 'hosts' },
  { path: 'nodes', name: 'Nodes', icon: 'nodes' },
  { path: 'jobs', name: 'Jobs', icon: 'jobs' },
  { path: 'events', name: 'Events and audit', icon: 'events' },
  { path: 'users', name: 'Users and tokens', icon: 'users' },
]

export function Shell() {
  const [open, { toggle, close }] = useDisclosure()
  const route = useRoute()
  const { path } = route
  const at = path.join('/')
  const shown = useRef(at)
  useEffect(() => {
    close()
    window.scrollTo(0, 0)
    // The link that led here is gone with its screen.
    if (shown.current !== at && document.activeElement === document.body) focusContent()
    shown.current = at
  }, [at, close])
  const place = PLACES.find((place) => place.path === (path[0] ?? ''))
  useEffect(() => {
    document.title = `${path[1] ?? place?.name ?? 'Ursa'} – Ursa`
  }, [path, place])
  return (
    <AppShell header={{ height: 54 }} navbar={{ width: 210, breakpoint: 'sm', collapsed: { mobile: !open } }} padding="md">
      <a className="skip" href={location.hash || '#/'} onClick={(event) => { event.preventDefault(); focusContent() }}>
        Skip to content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="sm" wrap="nowrap" style={{ minWidth: 0 }}>
            <Burger opened={open} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Menu" />
            <img src="./icon.svg" width={28} height={28} alt="" />
            <Text fw={700} component="a" href="#/" c="inherit" td="none" visibleFrom="xs">
              Ursa
            </Text>
            <Where />
          </Group>
          <Group gap="xs" wrap="nowrap">
            <HealthBadge />
            <SchemeMenu />
            <MeMenu />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs">
        <AppShell.Section grow component={ScrollArea} aria-label="Screens">
          {PLACES.map(({ path: to, name, icon }) => (
            <NavLink key={to} href={`#/${to}`} label={name} leftSection={<Icon name={icon} />} active={(path[0] ?? '') === to} aria-current={(path[0] ?? '') === to ? 'page' : undefined} py={7} />
          ))}
        </AppShell.Section>
        <AppShell.Section>
          <Version />
        </AppShell.Section>
      </AppShell.Navbar>
      <AppShell.Main tabIndex={-1} style={{ outline: 'none' }}>
        {screenAt(route)}
      </AppShell.Main>
    </AppShell>
  )
}

function Where() {
  const node = useNode()
  return (
    <Text size="sm" c="dimmed" truncate title="The node that serves this console">
      {node.data ? `node ${node.data.name}` : ''}
    </Text>
  )
}

function Version() {
  const node = useNode()
  return (
    <Text size="xs" c="dimmed" p="xs">
      {node.data ? `Ursa ${node.data.version}` : ''}
    </Text>
  )
}

function HealthBadge() {
  const { found, failed } = useHealth()
  if (failed) return <State tone="critical">no answer</State>
  if (!found) return null
  const severity = worstTone(found)
  const many = problemsIn(found)
  const word = many > 0 ? plural(many, 'problem') : severity === 'working' ? 'resyncing' : 'healthy'
  return (
    <a href="#/" style={{ textDecoration: 'none', display: 'inline-flex' }} aria-label={`Health: ${word}`}>
      <State tone={severity}>{word}</State>
    </a>
  )
}

function SchemeMenu() {
  const { colorScheme, setColorScheme } = useMantineColorScheme()
  const icon = colorScheme === 'auto' ? 'screen' : colorScheme === 'dark' ? 'moon' : 'sun'
  return (
    <Menu>
      <Menu.Target>
        <ActionIcon variant="default" size="lg" aria-label="Theme">
          <Icon name={icon} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item leftSection={<Icon name="screen" />} onClick={() => setColorScheme('auto')}>Follow system</Menu.Item>
        <Menu.Item leftSection={<Icon name="sun" />} onClick={() => setColorScheme('light')}>Light</Menu.Item>
        <Menu.Item leftSection={<Icon name="moon" />} onClick={() => setColorScheme('dark')}>Dark</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}

function MeMenu() {
  const me = useMe()
  if (!me) return null
  async function leave() {
    await json('POST', '/v1/logout').catch(() => undefined)
    queries.clear()
    location.hash = '#/'
    location.reload()
  }
  return (
    <Menu>
      <Menu.Target>
        <Button variant="default" size="sm" px="xs" aria-label={`Account: ${me.name}`}>
          <Icon name="users" />
          <Text span size="sm" ml={6} visibleFrom="xs">
            {me.name}
          </Text>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>Role: {me.role}</Menu.Label>
        <Menu.Item leftSection={<Icon name="out" />} onClick={() => void leave()}>Log out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  )
}
