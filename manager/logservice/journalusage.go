package logservice

import (
	"context"
	"iter"
	"maps"

	"github.com/delegate-io/dlite/manager/internal/livelog"
)

func (js *journals) All(_ context.Context, account string) iter.Seq2[livelog.ID, livelog.State] {
	js.mu.Lock()
	chosen := js.streams
	if account != "" {
		chosen = nil
		if o := js.owned[account]; o != nil {
			chosen = o.streams
		}
	}
	all := make(map[livelog.ID]livelog.State, len(chosen))
	for id, j := range chosen {
		if j.name != "" {
			all[id] = j.state()
		}
	}
	js.mu.Unlock()
	return maps.All(all)
}

func (js *journals) Usage(account string) (own, all livelog.Usage) {
	js.mu.Lock()
	defer js.mu.Unlock()
	if o := js.owned[account]; o != nil {
		own = o.usage
	}
	return own, js.all
}

// owned contains the streams of one account.
type owned struct {
	streams map[livelog.ID]*journal
	usage   livelog.Usage
}

// add, drop and resize change the sets of streams and their usage. The caller must hold
// mu.
func (js *journals) add(j *journal) {
	o := js.owned[j.id.Account]
	if o == nil {
		o = &owned{streams: map[livelog.ID]*journal{}}
		js.owned[j.id.Account] = o
	}
	js.streams[j.id], o.streams[j.id] = j, j
	o.usage.Logs++
	js.all.Logs++
}

func (js *journals) drop(j *journal) {
	o := js.owned[j.id.Account]
	delete(js.streams, j.id)
	delete(o.streams, j.id)
	o.usage.Logs--
	js.all.Logs--
	if o.usage.Logs == 0 {
		delete(js.owned, j.id.Account)
	}
}

func (js *journals) resize(j *journal, by int64) {
	js.all.Size += by
	js.owned[j.id.Account].usage.Size += by
}
