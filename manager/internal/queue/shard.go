package queue

import (
	"cmp"
	"maps"
	"slices"
)

// tag is what delegates have and selectors ask for.
type tag struct {
	name    string
	holders map[*delegate]struct{}
	shards  [2]*shard // by kind, nil until a requirement waits there
	users   int       // requirements that wait in the shards
}

// shard is where works and delegates of one tag meet. A requirement waits in one
// shard: that of its rarest selector. A delegate that can take a work is a candidate
// in the shards of all its tags.
type shard struct {
	tag        *tag
	waiters    sorted[waiter]
	candidates sorted[candidate]
}

// candidate is a delegate that can take a work of the shard's kind.
type candidate struct {
	rank     rank
	delegate *delegate
}

func (c candidate) before(o candidate) bool { return c.rank.before(&o.rank) }

// rank is the order in which delegates get works (rule Q2). It is a copy: a
// delegate stands in its shards by the rank that it had at account.updateRanks.
type rank struct {
	free, slots, open int
	idle              instant
	order             uint64
}

func (r *rank) before(o *rank) bool {
	return cmp.Or(cmp.Compare(o.free, r.free), cmp.Compare(r.slots, o.slots), cmp.Compare(r.open, o.open),
		cmp.Compare(r.idle, o.idle), cmp.Compare(r.order, o.order)) < 0
}

// rank returns the delegate's rank at present, and whether it can take a work at all.
func (d *delegate) rank(k kind) (r rank, ok bool) {
	if !d.takesWork() || k == stages && d.free() <= 0 {
		return rank{}, false
	}
	r = rank{open: len(d.open), idle: d.idleSince, order: d.order}
	if k == stages {
		r.free, r.slots = d.free(), len(d.slots)
	}
	return r, true
}

// touch notes that the delegate's rank may have changed.
func (d *delegate) touch() {
	if !d.touched {
		d.touched = true
		d.account.touched = append(d.account.touched, d)
	}
}

// updateRanks moves the delegates that were touched to their places. A slot that
// becomes free and is given away before the next call moves nothing.
func (a *account) updateRanks() {
	for _, d := range a.touched {
		d.touched = false
		for k := range d.ranks {
			r, ok := d.rank(kind(k))
			if d.ranked[k] == ok && d.ranks[k] == r {
				continue
			}
			d.stand(kind(k), false)
			d.ranked[k], d.ranks[k] = ok, r
			d.stand(kind(k), true)
		}
	}
	clear(a.touched)
	a.touched = a.touched[:0]
}

// stand makes the delegate a candidate in the shards of its tags, or ends that.
func (d *delegate) stand(k kind, in bool) {
	for _, t := range d.holds {
		d.standAt(t, k, in)
	}
}

func (d *delegate) standAt(t *tag, k kind, in bool) {
	s := t.shards[k]
	switch {
	case s == nil || !d.ranked[k]:
	case in:
		s.candidates.insert(candidate{d.ranks[k], d})
	default:
		s.candidates.remove(candidate{d.ranks[k], d})
	}
}

// setTags gives the delegate other tags: names, and the one that all delegates have.
// It is nil for a delegate that is removed.
func (d *delegate) setTags(names map[string]bool) {
	a := d.account
	for _, t := range d.holds {
		for k := range t.shards {
			d.standAt(t, kind(k), false)
		}
		delete(t.holders, d)
		a.dropTag(t)
	}
	d.tags, d.holds = names, nil
	if names == nil {
		return
	}
	d.holds = append(d.holds, a.everyone)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		d.holds = append(d.holds, a.tag(name))
	}
	for _, t := range d.holds {
		t.holders[d] = struct{}{}
		for k := range t.shards {
			d.standAt(t, kind(k), true)
		}
	}
}

// tag finds or makes a tag.
func (a *account) tag(name string) *tag {
	t := a.tags[name]
	if t == nil {
		t = newTag(name)
		a.tags[name] = t
	}
	return t
}

func newTag(name string) *tag { return &tag{name: name, holders: map[*delegate]struct{}{}} }

// dropTag forgets a tag that no delegate has and no requirement uses.
func (a *account) dropTag(t *tag) {
	if len(t.holders) == 0 && t.users == 0 && t != a.everyone {
		delete(a.tags, t.name)
	}
}

// shard finds or makes the tag's shard of a kind. It stays while the tag does.
func (t *tag) shard(k kind) *shard {
	if t.shards[k] == nil {
		t.shards[k] = &shard{tag: t}
		for d := range t.holders {
			d.standAt(t, k, true)
		}
	}
	return t.shards[k]
}

// chooseShard moves the requirement to the shard of the selector that the fewest
// delegates have, since a decision passes its neighbours there.
func (r *requirement) chooseShard() {
	a, rarest, fewest := r.account, "", -1
	for _, s := range r.selectors {
		holders := 0
		if t := a.tags[s]; t != nil {
			holders = len(t.holders)
		}
		if fewest < 0 || holders < fewest {
			rarest, fewest = s, holders
		}
	}
	if r.shard != nil && (fewest < 0 || fewest >= len(r.shard.tag.holders)) {
		return
	}
	t := a.everyone
	if fewest >= 0 {
		t = a.tag(rarest)
	}
	moves := r.entry.requirement != nil && r.blocked == nil
	if moves {
		r.shard.waiters.remove(r.entry)
	}
	t.users++
	r.leaveShard()
	r.shard = t.shard(r.kind)
	r.others = slices.DeleteFunc(slices.Clone(r.selectors), func(s string) bool { return s == rarest && fewest >= 0 })
	if moves {
		r.shard.waiters.insert(r.entry)
	}
}

// leaveShard ends the requirement's use of its shard, if it has one.
func (r *requirement) leaveShard() {
	if r.shard == nil {
		return
	}
	t := r.shard.tag
	r.shard = nil
	t.users--
	r.account.dropTag(t)
}
