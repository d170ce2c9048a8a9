package main

import (
	"sync/atomic"

	"github.com/delegate-io/dlite/driver"
)

// forecast passes the numbers of stages that wait at the manager on to the pools of machines.
type forecast struct {
	machines atomic.Pointer[machines] // nil until the pools are open, and without pools
}

// use sets the pools.
func (f *forecast) use(drivers []driver.Driver) {
	for _, d := range drivers {
		if m, ok := d.(*machines); ok {
			f.machines.Store(m)
		}
	}
}

// report gets the numbers by the names of pools. Stages that name none get a machine of the first pool.
func (f *forecast) report(stages map[string]int) {
	m := f.machines.Load()
	if m == nil {
		return
	}
	for i, p := range m.pools {
		n := stages[p.Name()]
		if i == 0 {
			n += stages[""]
		}
		if m.forecast[p.Name()] {
			p.SetWaiting(n)
		}
	}
}
