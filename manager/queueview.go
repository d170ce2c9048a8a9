package manager

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/manager/internal/queue"
)

const (
	// maxGroups is the largest number of groups in an answer: those with the most stages.
	maxGroups = 1000
	// maxCounted is the largest number of groups that are counted: labels are the submitters' choice.
	maxCounted = 10_000
	// maxNeeds is the largest number of needs in an answer: the needs of the next stages.
	maxNeeds = 50
)

func (m *Manager) showQueue(w http.ResponseWriter, r *http.Request) {
	if err := m.journal.Sync(r.Context()); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, m.queueViews.of(m, account(r)))
}

// queueViews keeps the newest view of each account for callers that ask often: a view takes time in proportion to the
// number of stages.
type queueViews struct {
	mu   sync.Mutex
	made map[string]madeView
}

type madeView struct {
	at   time.Time
	view api.Queue
}

// queueAge is how old a view may be.
const queueAge = 500 * time.Millisecond

func (v *queueViews) of(m *Manager, account string) api.Queue {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := m.cfg.Clock.Now()
	if made, ok := v.made[account]; ok && now.Sub(made.at) < queueAge && !now.Before(made.at) {
		return made.view
	}
	if v.made == nil {
		v.made = map[string]madeView{}
	}
	made := madeView{now, m.queueView(account)}
	v.made[account] = made
	return made.view
}

func (m *Manager) queueView(account string) api.Queue {
	now, q := m.journal.Now(), m.core.queue
	v := api.Queue{Groups: []api.QueueGroup{}, Needs: []api.QueueNeed{}}
	v.Paused, v.Note = q.Paused(account)
	groups := m.core.countGroups(account, now)
	for _, l := range m.Limits(account) {
		g := groups[l.Group]
		g.Group, g.Max, g.Used = l.Group, l.Max, l.Used
		groups[l.Group] = g
	}
	v.Waiting, v.Running = groups[wholeAccount].Waiting, groups[wholeAccount].Running
	all := slices.SortedFunc(maps.Values(groups), func(a, b api.QueueGroup) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Running, a.Running), cmp.Compare(a.Group, b.Group))
	})
	v.Groups = append(v.Groups, all[:min(len(all), maxGroups)]...)
	for _, n := range q.Needs(account, maxNeeds) {
		v.Needs = append(v.Needs, viewOfNeed(n, now))
	}
	return v
}

func viewOfNeed(n queue.Waiting, now time.Time) api.QueueNeed {
	return api.QueueNeed{
		Selectors: emptyIfNil(n.Selectors), Waiting: n.Count, OldestMS: max(now.Sub(n.Since).Milliseconds(), 0), Reason: n.Reason, Detail: n.Detail,
	}
}

// countGroups counts an account's stages that have not ended by their groups.
func (c *core) countGroups(account string, now time.Time) map[string]api.QueueGroup {
	groups := map[string]api.QueueGroup{wholeAccount: {Group: wholeAccount}}
	for after, more := uint64(0), true; more; {
		after, more = c.countGroupsAfter(account, now, after, groups)
	}
	return groups
}

// countGroupsAfter counts the stages after the one with an order, as many as one lock of the core should last.
func (c *core) countGroupsAfter(account string, now time.Time, after uint64, groups map[string]api.QueueGroup) (last uint64, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.inOrder[account]
	first, _ := slices.BinarySearchFunc(list, after+1, func(n *run, order uint64) int { return cmp.Compare(n.order, order) })
	for i, n := range list[first:] {
		if i == pageChunk {
			return after, true
		}
		after = n.order
		if c.stages[key{account, n.ID}] != n || n.Status.Ended() {
			continue
		}
		names := []string{wholeAccount}
		if n.Pipeline != "" {
			names = append(names, "pipeline:"+n.Pipeline)
		}
		for name, value := range n.Labels {
			names = append(names, "label:"+name+"="+value)
		}
		for _, name := range names {
			g, known := groups[name]
			if !known && len(groups) >= maxCounted {
				continue
			}
			g.Group = name
			if n.Status == api.Queued {
				g.Waiting, g.OldestMS = g.Waiting+1, max(g.OldestMS, waited(&n.Stage, now))
			} else {
				g.Running++
			}
			groups[name] = g
		}
	}
	return after, false
}
