package manager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delegate-io/dlite/manager/api"
)

// fleetModel implements the rule of the share in simple terms: with sets of delegates and two numbers.
type fleetModel struct {
	r       *rollout
	at      time.Time
	alive   int
	version map[string]string // of each delegate
	granted map[string]time.Time
	targets map[string]string
	failed  map[string]bool
	fails   int
	grants  int
}

const fleetReturn = 10 * time.Minute

// Rule G4: never are more delegates away than the share permits. After the failures no delegate gets a permission until
// an operator continues. Then the update goes on until all have the version.
func TestTheShareOfAnUpdate(t *testing.T) {
	t.Parallel()
	histories, grants, stops := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m := &fleetModel{at: time.Unix(1e9, 0), alive: rapid.IntRange(1, 30).Draw(t, "alive"), version: map[string]string{}, failed: map[string]bool{},
			granted: map[string]time.Time{}, targets: map[string]string{}}
		m.r = &rollout{Away: map[string]api.UpgradeDelegate{}}
		for i := range m.alive {
			m.version[fmt.Sprint("d", i)] = "v1.0.0"
		}
		m.set(t)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			m.step(t, &stops)
		}
		histories++
		grants += m.grants
		m.finish(t)
	})
	t.Logf("%d histories, %d permissions, %d asks of stopped updates", histories, grants, stops)
}

func (m *fleetModel) set(t *rapid.T) {
	order := api.Upgrade{
		Version:     rapid.SampledFrom([]string{"v1.1.0", "v1.2.0"}).Draw(t, "version"),
		Share:       rapid.SampledFrom([]string{"1", "2", "5", "10%", "50%", "100%"}).Draw(t, "share"),
		MaxFailures: rapid.IntRange(1, 3).Draw(t, "max failures"), ReturnMS: fleetReturn.Milliseconds(),
		Paused: rapid.IntRange(0, 9).Draw(t, "paused") == 0,
	}
	m.r.set(order, m.at)
	m.failed, m.fails = map[string]bool{}, 0
}

// limit is the number of delegates that may be away.
func (m *fleetModel) limit() int {
	return map[string]int{
		"1": 1, "2": 2, "5": 5, "10%": max(1, m.alive/10), "50%": max(1, m.alive/2), "100%": m.alive,
	}[m.r.Order.Share]
}

func (m *fleetModel) expire() {
	for id, since := range m.granted {
		if m.at.Sub(since) > fleetReturn {
			delete(m.granted, id)
			m.failed[id] = true
			m.fails++
		}
	}
}

func (m *fleetModel) step(t *rapid.T, stops *int) {
	switch rapid.IntRange(0, 12).Draw(t, "action") {
	case 0:
		m.at = m.at.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "seconds")) * time.Second)
		return
	case 1:
		m.set(t)
		return
	case 2: // a manager that is killed loads what it has saved
		b, err := json.Marshal(m.r)
		require.NoError(t, err)
		again := &rollout{Away: map[string]api.UpgradeDelegate{}}
		require.NoError(t, json.Unmarshal(b, again))
		m.r = again
		return
	}
	id := fmt.Sprint("d", rapid.IntRange(0, m.alive-1).Draw(t, "delegate"))
	a := &askCommand{ID: id, Name: id, Version: m.version[id]}
	_, away := m.granted[id]
	if away {
		switch rapid.IntRange(0, 3).Draw(t, "outcome") {
		case 0: // it asks again, because it did not get the answer
		case 1:
			a.Failed, a.Reason = m.targets[id], "it did not register"
		default:
			m.version[id] = m.targets[id]
			a.Version = m.targets[id]
		}
	}
	m.ask(t, a, stops)
}

func (m *fleetModel) ask(t *rapid.T, a *askCommand, stops *int) {
	stateBefore, err := json.Marshal(m.r)
	require.NoError(t, err)
	m.expire()
	_, away := m.granted[a.ID]
	same := false
	switch {
	case away && a.Failed != "":
		delete(m.granted, a.ID)
		m.failed[a.ID] = true
		m.fails++
	case away && a.Version == m.targets[a.ID]:
		delete(m.granted, a.ID)
	case away:
		same = m.targets[a.ID] == m.r.Order.Version && m.fails < m.r.Order.MaxFailures && !m.r.Order.Paused
		if !same {
			delete(m.granted, a.ID)
		}
	}
	stopped := m.fails >= m.r.Order.MaxFailures
	want := same || !stopped && !m.r.Order.Paused && !m.failed[a.ID] && a.Version != m.r.Order.Version &&
		a.Failed != m.r.Order.Version && len(m.granted) < m.limit()
	if stopped {
		*stops++
	}
	p, changed := m.r.ask(a, m.alive, m.at)
	require.Equal(t, want, p.Granted, "%+v gets %+v", a, p)
	require.Equal(t, m.r.Order.Version, p.Version)
	require.True(t, p.Granted || p.Reason != "" || a.Version == p.Version, "a refusal has a reason")
	stateAfter, err := json.Marshal(m.r)
	require.NoError(t, err)
	require.Equal(t, string(stateBefore) != string(stateAfter), changed, "%s\n%s", stateBefore, stateAfter)
	if p.Granted && !same {
		m.granted[a.ID], m.targets[a.ID] = m.at, p.Version
		m.grants++
		require.LessOrEqual(t, len(m.granted), m.limit(), "more are away than the share permits")
	}
	require.Len(t, m.r.Away, len(m.granted))
	require.Len(t, m.r.Failed, m.fails)
}

// finish continues the update, with delegates that succeed. All get the version.
func (m *fleetModel) finish(t *rapid.T) {
	m.r.set(api.Upgrade{Version: "v2.0.0", Share: "1", MaxFailures: 1000, ReturnMS: fleetReturn.Milliseconds()}, m.at)
	m.failed, m.fails = map[string]bool{}, 0
	for round := 0; ; round++ {
		require.Less(t, round, 5, "the update does not end: %+v", m.r)
		m.at = m.at.Add(fleetReturn + time.Second) // delegates that are away for a former version are lost or back
		if round > 0 {
			m.r.set(m.r.Order, m.at)
		}
		done := 0
		for id, v := range m.version {
			if p, _ := m.r.ask(&askCommand{ID: id, Version: v}, m.alive, m.at); p.Granted {
				m.version[id] = p.Version
				_, _ = m.r.ask(&askCommand{ID: id, Version: p.Version}, m.alive, m.at)
			}
			if m.version[id] == "v2.0.0" {
				done++
			}
		}
		if done == m.alive {
			return
		}
	}
}

// A manager that starts again has the update, with the delegates that are away.
func TestASavedUpdate(t *testing.T) {
	t.Parallel()
	c := newCore(true)
	c.at = time.Unix(1e9, 0).UTC()
	order := api.Upgrade{Version: "v1.1.0", Share: "2", MaxFailures: 1, ReturnMS: fleetReturn.Milliseconds()}
	require.NoError(t, c.setUpgrade("acc", &order))
	require.True(t, c.ask("acc", &askCommand{ID: "d", Version: "v1.0.0"}).Granted)
	var b bytes.Buffer
	require.NoError(t, c.Save(&b))
	again := newCore(true)
	require.NoError(t, again.Load(&b))
	require.Equal(t, c.rollouts["acc"].view(c.at), again.rollouts["acc"].view(c.at))
	again.ask("acc", &askCommand{ID: "d", Version: "v1.1.0"})
	require.Equal(t, 1, again.rollouts["acc"].Returned)
}
