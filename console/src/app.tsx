// Shows the setup, the login or the screens, depending on the user's access.

import { Center, Container, Loader } from '@mantine/core'
import { useEffect } from 'react'
import { MeProvider, useAccess } from './api/access'
import { whenLoginIsNeeded } from './api/client'
import { queries } from './api/queries'
import { ProblemAlert } from './parts/Problem'
import { useRoute } from './route'
import { Shell } from './shell'
import { Login } from './screens/Login'
import { Setup } from './screens/Setup'

export function App() {
  const access = useAccess()
  const { path, query } = useRoute()
  useEffect(() => {
    whenLoginIsNeeded(() => {
      // Only if a user is logged in as far as we know: without a login, the request for the current user gets
      // the same status.
      const known = queries.getQueryData<{ kind: string }>(['access'])
      if (known?.kind === 'in') void queries.invalidateQueries({ queryKey: ['access'] })
    })
  }, [])
  if (access.data) {
    const { kind, cluster } = { cluster: undefined, ...access.data }
    if (kind === 'setup') return <Setup cluster={cluster} token={path[0] === 'setup' ? (query.get('token') ?? '') : ''} />
    if (kind === 'login') return <Login cluster={cluster} />
    return (
      <MeProvider value={access.data.kind === 'in' ? access.data.me : undefined}>
        <Shell />
      </MeProvider>
    )
  }
  if (access.error) {
    return (
      <Container size="sm" pt={80}>
        <ProblemAlert error={access.error} what="The console cannot start" />
      </Container>
    )
  }
  return (
    <Center h="100vh">
      <Loader aria-label="Loading" />
    </Center>
  )
}
