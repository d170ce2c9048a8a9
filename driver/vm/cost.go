package vm

import "time"

// use is the purpose of a machine's time.
type use string

const (
	useStage use = "stage" // from the claim to the end of the cleanup
	useIdle  use = "idle"  // warm, reserved or not
	useOther use = "other" // being created or destroyed
)

func (ph phase) use() use {
	switch ph {
	case assigned, claimed, returning:
		return useStage
	case warm, reserving, reservedIdle:
		return useIdle
	default:
		return useOther
	}
}

// bill sums the time of the machines of a pool by its use. The pool's mu guards it.
type bill struct {
	spent  map[use]time.Duration
	stages uint64 // transactions that had a machine
}

// charge adds the time since the last charge to the use of the machine's phase. The caller holds mu.
func (m *machine) charge(now time.Time) {
	if d := now.Sub(m.charged); d > 0 {
		m.bill.spent[m.phase.use()] += d
	}
	m.charged = now
}

// costs returns the time of machines by use until now, and the number of transactions.
func (p *Pool) costs() (spent map[use]time.Duration, stages uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	spent = map[use]time.Duration{}
	for _, m := range p.machines {
		m.charge(now)
	}
	for _, u := range []use{useStage, useIdle, useOther} {
		spent[u] = p.bill.spent[u]
	}
	return spent, p.bill.stages
}
