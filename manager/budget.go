package manager

import (
	"fmt"
	"sync"
	"time"
)

// Budget bounds the resources of one account, or of all accounts together. The manager
// answers a call beyond it with 429, Retry-After and the name of the resource. In a
// field, 0 means the default and a negative number means no bound. Each manager of a
// store has the whole budget for calls, and counts the state that all managers share.
type Budget struct {
	// Works is the number of stages and single tasks that have not ended. Defaults to
	// 100,000 for an account and 1,000,000 in total.
	Works int
	// Bytes is the size of their requests, with 1 KiB for each part of a stage. It also
	// bounds the large bodies of calls that the manager is reading, separately. Defaults
	// to 256 MiB and 1 GiB.
	Bytes int
	// Delegates is the number of known delegates, with lost ones. Defaults to 10,000 and
	// 50,000.
	Delegates int
	// Schedules is the number of schedules. Defaults to 1,000 and 10,000.
	Schedules int
	// Daemons is the number of daemon sets and their tasks. Defaults to 20,000 and 200,000. Their
	// requests count as Bytes.
	Daemons int
	// Holds is the number of calls that wait: calls with wait, and synchronous
	// submissions. A poll of a delegate beyond it is not refused but answered at once.
	// Defaults to 10,000 and 50,000.
	Holds int
	// Streams is the number of event streams. Defaults to 200 and 1,000.
	Streams int
	// Perpetual is the number of perpetual tasks. Defaults to 10,000 and 50,000.
	Perpetual int
}

// resource is a kind of resource that has a budget.
type resource int

const (
	budgetWorks resource = iota
	budgetBytes
	budgetBodies
	budgetDelegates
	budgetSchedules
	budgetDaemons
	budgetHolds
	budgetStreams
	budgetPerpetual
	resources
)

var resourceNames = [resources]string{"works", "bytes", "bodies", "delegates", "schedules", "daemons", "holds", "streams", "perpetual"}

// amounts are amounts of all resources.
type amounts [resources]int

func (a *amounts) add(b amounts, sign int) {
	for r := range b {
		a[r] += sign * b[r]
	}
}

func (b Budget) amounts(defaults amounts) amounts {
	a := amounts{b.Works, b.Bytes, b.Bytes, b.Delegates, b.Schedules, b.Daemons, b.Holds, b.Streams, b.Perpetual}
	for r := range a {
		if a[r] == 0 {
			a[r] = defaults[r]
		}
	}
	return a
}

// budgets counts the resources of the calls in this process. The state counts the rest.
type budgets struct {
	m           *Manager
	each, total amounts // the bounds

	mu        sync.Mutex
	used      map[string]*amounts // by account
	sum       amounts
	delegates map[string]*countedDelegates // by account
}

// countedDelegates is the number of an account's delegates at a time. Counting takes
// time in proportion to the number.
type countedDelegates struct {
	at time.Time
	n  int
}

func newBudgets(m *Manager) *budgets {
	return &budgets{
		m:     m,
		each:  m.cfg.AccountBudget.amounts(amounts{100_000, 256 << 20, 256 << 20, 10_000, 1_000, 20_000, 10_000, 200, 10_000}),
		total: m.cfg.TotalBudget.amounts(amounts{1_000_000, 1 << 30, 1 << 30, 50_000, maxSchedules, 200_000, 50_000, 1_000, 50_000}),
		used:  map[string]*amounts{}, delegates: map[string]*countedDelegates{},
	}
}

// take books amounts for an account until the caller calls release. It fails with
// [ErrBudget].
func (b *budgets) take(account string, need amounts) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.used[account]
	if own == nil {
		own = &amounts{}
		b.used[account] = own
	}
	kept, all := b.m.core.occupied(account)
	if need[budgetDelegates] > 0 {
		for _, id := range b.m.Accounts() {
			n := b.countDelegates(id)
			all[budgetDelegates] += n
			if id == account {
				kept[budgetDelegates] = n
			}
		}
	}
	for r, n := range need {
		if n == 0 {
			continue
		}
		if used := kept[r] + own[r]; b.each[r] >= 0 && used+n > b.each[r] {
			return nil, fmt.Errorf("%w: %s of the account: %d are in use, %d more would exceed %d", ErrBudget, resourceNames[r], used, n, b.each[r])
		}
		if used := all[r] + b.sum[r]; b.total[r] >= 0 && used+n > b.total[r] {
			return nil, fmt.Errorf("%w: %s of all accounts: the manager has %d", ErrBudget, resourceNames[r], b.total[r])
		}
	}
	own.add(need, 1)
	b.sum.add(need, 1)
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		own.add(need, -1)
		b.sum.add(need, -1)
	}), nil
}

// recount is the time for which a count of delegates is used.
const recount = time.Second

// countDelegates returns the number of an account's delegates. The caller holds mu.
func (b *budgets) countDelegates(account string) int {
	c := b.delegates[account]
	if c == nil {
		c = &countedDelegates{}
		b.delegates[account] = c
	}
	if now := time.Now(); now.Sub(c.at) > recount || c.n >= b.each[budgetDelegates] {
		c.at, c.n = now, len(b.m.core.queue.Delegates(account))
	}
	return c.n
}

// registered counts a new delegate.
func (b *budgets) registered(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.delegates[account]; c != nil {
		c.n++
	}
}

// occupied returns the usage of an account, and of all accounts, in the state. It leaves out
// delegates.
func (c *core) occupied(account string) (own, all amounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.usage[account]; u != nil {
		own = *u
	}
	return own, c.usageSum
}

// occupy changes the usage of an account in the state.
func (c *core) occupy(account string, change amounts, sign int) {
	u := c.usage[account]
	if u == nil {
		u = &amounts{}
		c.usage[account] = u
	}
	u.add(change, sign)
	c.usageSum.add(change, sign)
}

// workAmounts returns the usage of a stage or single task.
func workAmounts(size int) amounts { return amounts{budgetWorks: 1, budgetBytes: size} }

// partSize is the size of a part of a stage without its payload, in bytes.
const partSize = 1 << 10
