package secrets

import (
	"bytes"
	"math/bits"
	"slices"
)

// machine is an Aho-Corasick automaton over bytes: it looks at every byte, in two
// steps at most on average, whatever the text is. State 0 is the start. The states
// are the prefixes of the needles: those of one byte, those of two, and all others
// in the order of a walk along the sorted needles. So what every text touches lies
// together in memory, and so does what belongs to one needle.
type machine struct {
	start [256]int32 // the state after a byte at the start
	// pairs are the states after two bytes, at the start or not, if no suffix of
	// more than one byte has a state before the second.
	pairs  [256][256]int32
	longer int32 // states from here on are of two bytes and more
	nodes  []node
	depth  []int32 // the length of the prefix, by state
	label  []byte  // its last byte
	// branches are for states that do not lead to the next one alone: 256 bits, one for
	// each byte that leads on, and the children in the order of these bytes. Most
	// fill one line of the processor's cache.
	branches []uint32
}

// node is a state. Children of states of one byte are in pairs.
type node struct {
	fail    int32 // the longest proper suffix that is a state
	longest int32 // the length of the longest needle that ends here, or 0
	branch  int32 // where its children are in branches, or 0 without several
	next    bool  // the next state is its child, after byte only
	only    byte
	hint    uint16 // of the bytes that lead on by the branch, a bit for several of them
}

// bitmap is the number of words before a branch's children.
const bitmap = 256 / 32

// hint is the bit of a byte.
func hint(b byte) uint16 { return 1 << ((b ^ b>>4) & 15) }

// compile builds the machine for needles, none of which is empty.
func compile(needles [][]byte) *machine {
	sorted := slices.Clone(needles)
	slices.SortFunc(sorted, bytes.Compare)
	sorted = slices.CompactFunc(sorted, bytes.Equal)

	states, previous := 1<<10, []byte(nil)
	for _, n := range sorted {
		states += len(n) - commonPrefix(n, previous)
		previous = n
	}
	m := &machine{
		branches: make([]uint32, 16), // so that none is at 0
		nodes:    make([]node, 1, states), depth: make([]int32, 1, states), label: make([]byte, 1, states),
	}
	m.shallow(sorted)
	m.link(m.walk(sorted))
	return m
}

// add makes a state.
func (m *machine) add(depth int, label byte) int32 {
	m.nodes = append(m.nodes, node{})
	m.depth = append(m.depth, int32(depth))
	m.label = append(m.label, label)
	return int32(len(m.nodes) - 1)
}

// shallow makes the states of one and of two bytes.
func (m *machine) shallow(sorted [][]byte) {
	for _, n := range sorted {
		if m.start[n[0]] == 0 {
			m.start[n[0]] = m.add(1, n[0])
		}
	}
	m.longer = int32(len(m.nodes))
	for _, n := range sorted {
		if len(n) > 1 && m.pairs[n[0]][n[1]] == 0 {
			s := m.add(2, n[1])
			m.nodes[s].fail = m.start[n[1]]
			m.pairs[n[0]][n[1]] = s
		}
	}
	for a := range m.pairs {
		for b, s := range m.pairs[a] {
			if s == 0 {
				m.pairs[a][b] = m.start[b]
			}
		}
	}
}

type edge struct {
	from, to int32
	label    byte
}

// walk makes all other states, and returns the length of the longest needle.
func (m *machine) walk(sorted [][]byte) (longest int32) {
	var more []edge                           // to children that are not the next state
	path, previous := []int32{0}, []byte(nil) // the states of the last needle
	for _, n := range sorted {
		d := commonPrefix(n, previous)
		path = path[:d+1]
		for ; d < len(n); d++ {
			var s int32
			switch d {
			case 0:
				s = m.start[n[0]]
			case 1:
				s = m.pairs[n[0]][n[1]]
			default:
				s = m.add(d+1, n[d])
				if p := &m.nodes[path[d]]; path[d] == s-1 {
					p.next, p.only = true, n[d]
				} else {
					more = append(more, edge{path[d], s, n[d]})
				}
			}
			path = append(path, s)
		}
		m.nodes[path[len(n)]].longest = int32(len(n))
		longest = max(longest, int32(len(n)))
		previous = n
	}
	m.branch(more)
	return longest
}

// branch enters the children that are not the next state.
func (m *machine) branch(more []edge) {
	// Those of one parent stay in the order of their bytes.
	slices.SortStableFunc(more, func(a, b edge) int { return int(a.from - b.from) })
	for len(more) > 0 {
		from := more[0].from
		n := 1
		for n < len(more) && more[n].from == from {
			n++
		}
		// One that fits a line of 16 words begins at one.
		at := len(m.branches)
		if over := at % 16; over > 0 && over+bitmap+1+n > 16 {
			at += 16 - over
		}
		m.branches = append(m.branches, make([]uint32, at-len(m.branches)+bitmap)...)
		p := &m.nodes[from]
		p.branch = int32(at)
		for _, e := range more[:n] {
			m.enter(p, at, e)
		}
		more = more[n:]
	}
}

// enter adds a child to the last branch.
func (m *machine) enter(p *node, at int, e edge) {
	m.branches[at+int(e.label>>5)] |= 1 << (e.label & 31)
	m.branches = append(m.branches, uint32(e.to))
	p.hint |= hint(e.label)
}

// link finds the suffixes, level by level: a state's is shorter. Those of the
// states of two bytes are known.
func (m *machine) link(longest int32) {
	at := make([]int32, longest+2)
	for _, d := range m.depth {
		at[d+1]++
	}
	for d := range longest + 1 {
		at[d+1] += at[d]
	}
	level := make([]int32, len(m.nodes))
	for s, d := range m.depth {
		level[at[d]] = int32(s)
		at[d]++
	}
	for _, s := range level[m.longer:] {
		n := &m.nodes[s]
		n.longest = max(n.longest, m.nodes[n.fail].longest)
		if n.next {
			m.nodes[s+1].fail = m.step(n.fail, m.label[s], n.only)
		}
		if n.branch > 0 {
			i := n.branch + bitmap
			for w, set := range m.branches[n.branch:i] {
				for ; set != 0; set &= set - 1 {
					b := byte(w<<5 + bits.TrailingZeros32(set))
					m.nodes[m.branches[i]].fail = m.step(n.fail, m.label[s], b)
					i++
				}
			}
		}
	}
}

// step is the state after byte b, before which the text has byte before.
func (m *machine) step(s int32, before, b byte) int32 {
	for s >= m.longer {
		n := &m.nodes[s]
		if n.next && n.only == b {
			return s + 1
		}
		if n.hint&hint(b) != 0 {
			if c := m.child(n.branch, b); c != 0 {
				return c
			}
		}
		s = n.fail
	}
	if s == 0 {
		return m.start[b]
	}
	return m.pairs[before][b]
}

// child is the child of a branch after byte b, or 0.
func (m *machine) child(branch int32, b byte) int32 {
	at := m.branches[branch:]
	w, bit := b>>5, uint32(1)<<(b&31)
	if at[w]&bit == 0 {
		return 0
	}
	n := bits.OnesCount32(at[w] & (bit - 1))
	for _, set := range at[:w] {
		n += bits.OnesCount32(set)
	}
	return int32(at[bitmap+n])
}

// settle is the state that s may give way to when the needles that end in it have
// been seen: one that a needle goes on from.
func (m *machine) settle(s int32) int32 {
	for s >= m.longer && !m.nodes[s].next && m.nodes[s].branch == 0 {
		s = m.nodes[s].fail
	}
	return s
}

// commonPrefix is the number of bytes with which both begin.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n {
		if x := load(a[i:]) ^ load(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
