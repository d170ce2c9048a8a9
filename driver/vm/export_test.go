package vm

import (
	"context"
	"time"
)

// PassFaults makes the pool call pass before and after each change of a record. The caller calls
// it before Start.
func (p *Pool) PassFaults(pass func(point string)) {
	open := p.open
	p.open = func(ctx context.Context, dir string) (records, error) {
		r, err := open(ctx, dir)
		if err != nil {
			return nil, err
		}
		return &faultyRecords{r, pass}, nil
	}
}

type faultyRecords struct {
	records
	pass func(point string)
}

func (f *faultyRecords) write(r *record, durable bool) error {
	as := string(r.Phase)
	if r.Reserved != nil {
		as += ", reserved"
	}
	f.pass("before it is on record as " + as)
	defer f.pass("after it is on record as " + as)
	return f.records.write(r, durable)
}

func (f *faultyRecords) remove(id string) error {
	f.pass("before its record is removed")
	defer f.pass("after its record is removed")
	return f.records.remove(id)
}

// ConnectLate prevents connections to machines before they are claimed. The caller calls it before
// Start.
func (p *Pool) ConnectLate() { p.dial = nil }

// Connected counts the open connections to machines that are not claimed.
func (p *Pool) Connected() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.machines {
		if m.connection != nil {
			n++
		}
	}
	return n
}

// SetUnreachable sets how long the agent of a running machine may be unreachable.
func (d *Driver) SetUnreachable(limit time.Duration) *Driver {
	d.unreachable = limit
	return d
}
