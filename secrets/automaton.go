package secrets

import (
	"bytes"
	"math/bits"
	"slices"
)

// automaton is an Aho-Corasick automaton over bytes. It takes at most two steps for
// each byte on average, whatever the text is.
//
// A state is a prefix of a pattern; state 0 is the empty prefix. The prefixes of one
// byte come first, then those of two bytes, then all others in the order of a walk
// through the sorted patterns. So the states that every text reaches lie together in
// memory, and so do the states of one pattern.
type automaton struct {
	start [256]int32 // the state after one byte from state 0
	// pairs are the states after two bytes, for texts of which no longer end is a
	// state.
	pairs     [256][256]int32
	firstLong int32 // the first state of two bytes or more
	nodes     []node
	depth     []int32 // for each state, the length of the prefix
	label     []byte  // for each state, the last byte of the prefix
	inLong    []bool  // for each state, whether a longer pattern of minBroken bytes begins with it
	// branches has the children of states that are not chained only. A branch is
	// a bitmap of 256 bits, one for each byte that has a child, followed by the
	// children in the order of the bytes. Most branches fill one cache line.
	branches []uint32
}

// node is a state. The children of states of one byte are in automaton.pairs.
type node struct {
	failure   int32 // the longest proper suffix that is a state
	longest   int32 // the length of the longest pattern that ends here, or 0
	branch    int32 // index of the state's branch in branches, or 0 without one
	chained   bool  // the next state is the child for chainByte
	chainByte byte
	hint      uint16 // the bytes that have a child in the branch, hashed to bits
}

// bitmapWords is the number of words before the children in a branch.
const bitmapWords = 256 / 32

// hintBit returns the bit of a byte in node.hint.
func hintBit(b byte) uint16 { return 1 << ((b ^ b>>4) & 15) }

// newAutomaton returns the automaton for patterns. None of them is empty.
func newAutomaton(patterns [][]byte) *automaton {
	sorted := slices.Clone(patterns)
	slices.SortFunc(sorted, bytes.Compare)
	sorted = slices.CompactFunc(sorted, bytes.Equal)

	states, previous := 1<<10, []byte(nil)
	for _, p := range sorted {
		states += len(p) - commonPrefix(p, previous)
		previous = p
	}
	a := &automaton{
		branches: make([]uint32, 16), // index 0 means that there is no branch
		nodes:    make([]node, 1, states), depth: make([]int32, 1, states), label: make([]byte, 1, states),
	}
	a.addShortStates(sorted)
	a.setFailures(a.addLongStates(sorted))
	return a
}

func (a *automaton) addState(depth int, label byte) int32 {
	a.nodes = append(a.nodes, node{})
	a.depth = append(a.depth, int32(depth))
	a.label = append(a.label, label)
	return int32(len(a.nodes) - 1)
}

// addShortStates adds the states of one and two bytes.
func (a *automaton) addShortStates(sorted [][]byte) {
	for _, p := range sorted {
		if a.start[p[0]] == 0 {
			a.start[p[0]] = a.addState(1, p[0])
		}
	}
	a.firstLong = int32(len(a.nodes))
	for _, p := range sorted {
		if len(p) > 1 && a.pairs[p[0]][p[1]] == 0 {
			s := a.addState(2, p[1])
			a.nodes[s].failure = a.start[p[1]]
			a.pairs[p[0]][p[1]] = s
		}
	}
	for x := range a.pairs {
		for y, s := range a.pairs[x] {
			if s == 0 {
				a.pairs[x][y] = a.start[y]
			}
		}
	}
}

// edge leads from a state to a child after a byte.
type edge struct {
	from, to int32
	label    byte
}

// addLongStates adds the states of three bytes and more, and marks the ends of the
// patterns. It returns the length of the longest pattern.
func (a *automaton) addLongStates(sorted [][]byte) (longest int32) {
	var edges []edge                          // to children that are not chained
	path, previous := []int32{0}, []byte(nil) // the states of the previous pattern
	for _, p := range sorted {
		d := commonPrefix(p, previous)
		path = path[:d+1]
		for ; d < len(p); d++ {
			var s int32
			switch d {
			case 0:
				s = a.start[p[0]]
			case 1:
				s = a.pairs[p[0]][p[1]]
			default:
				s = a.addState(d+1, p[d])
				if parent := &a.nodes[path[d]]; path[d] == s-1 {
					parent.chained, parent.chainByte = true, p[d]
				} else {
					edges = append(edges, edge{path[d], s, p[d]})
				}
			}
			path = append(path, s)
		}
		a.nodes[path[len(p)]].longest = int32(len(p))
		a.inLong = append(a.inLong, make([]bool, len(a.nodes)-len(a.inLong))...)
		for d := len(p) - 1; d > 0 && len(p) >= minBroken && !a.inLong[path[d]]; d-- {
			a.inLong[path[d]] = true
		}
		longest = max(longest, int32(len(p)))
		previous = p
	}
	a.addBranches(edges)
	return longest
}

// addBranches adds the children that are not chained.
func (a *automaton) addBranches(edges []edge) {
	// A stable sort keeps the edges of one state in the order of their bytes.
	slices.SortStableFunc(edges, func(a, b edge) int { return int(a.from - b.from) })
	for len(edges) > 0 {
		from := edges[0].from
		n := 1
		for n < len(edges) && edges[n].from == from {
			n++
		}
		// A branch that fits in a cache line of 16 words begins at one.
		at := len(a.branches)
		if over := at % 16; over > 0 && over+bitmapWords+1+n > 16 {
			at += 16 - over
		}
		a.branches = append(a.branches, make([]uint32, at-len(a.branches)+bitmapWords)...)
		parent := &a.nodes[from]
		parent.branch = int32(at)
		for _, e := range edges[:n] {
			a.addChild(parent, at, e)
		}
		edges = edges[n:]
	}
}

// addChild adds a child to the last branch, which begins at index at.
func (a *automaton) addChild(parent *node, at int, e edge) {
	a.branches[at+int(e.label>>5)] |= 1 << (e.label & 31)
	a.branches = append(a.branches, uint32(e.to))
	parent.hint |= hintBit(e.label)
}

// setFailures sets failure and longest of each state, in the order of their depths:
// the failure of a state has a smaller depth. The states of two bytes have theirs.
func (a *automaton) setFailures(longest int32) {
	at := make([]int32, longest+2)
	for _, d := range a.depth {
		at[d+1]++
	}
	for d := range longest + 1 {
		at[d+1] += at[d]
	}
	byDepth := make([]int32, len(a.nodes))
	for s, d := range a.depth {
		byDepth[at[d]] = int32(s)
		at[d]++
	}
	for _, s := range byDepth[a.firstLong:] {
		n := &a.nodes[s]
		n.longest = max(n.longest, a.nodes[n.failure].longest)
		if n.chained {
			a.nodes[s+1].failure = a.step(n.failure, a.label[s], n.chainByte)
		}
		if n.branch > 0 {
			i := n.branch + bitmapWords
			for w, set := range a.branches[n.branch:i] {
				for ; set != 0; set &= set - 1 {
					b := byte(w<<5 + bits.TrailingZeros32(set))
					a.nodes[a.branches[i]].failure = a.step(n.failure, a.label[s], b)
					i++
				}
			}
		}
	}
}

// step returns the state after byte b. previous is the byte before b in the text.
func (a *automaton) step(s int32, previous, b byte) int32 {
	for s >= a.firstLong {
		n := &a.nodes[s]
		if n.chained && n.chainByte == b {
			return s + 1
		}
		if n.hint&hintBit(b) != 0 {
			if c := a.child(n.branch, b); c != 0 {
				return c
			}
		}
		s = n.failure
	}
	if s == 0 {
		return a.start[b]
	}
	return a.pairs[previous][b]
}

// child returns the child in a branch for byte b, or 0.
func (a *automaton) child(branch int32, b byte) int32 {
	at := a.branches[branch:]
	w, bit := b>>5, uint32(1)<<(b&31)
	if at[w]&bit == 0 {
		return 0
	}
	n := bits.OnesCount32(at[w] & (bit - 1))
	for _, set := range at[:w] {
		n += bits.OnesCount32(set)
	}
	return int32(at[bitmapWords+n])
}

// skipLeaves follows the failures of s to the first state that has children. The
// caller has handled the patterns that end in s.
func (a *automaton) skipLeaves(s int32) int32 {
	for s >= a.firstLong && !a.nodes[s].chained && a.nodes[s].branch == 0 {
		s = a.nodes[s].failure
	}
	return s
}

// commonPrefix returns the length of the longest common prefix.
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
