package secrets

// patternList is a list of byte strings in one buffer. It holds no pointers, so the
// garbage collector does not scan tens of thousands of patterns. The zero value is
// an empty list.
type patternList struct {
	bytes []byte
	ends  []int // end offset of each pattern; bytes after the last one are an unfinished pattern
}

func (l *patternList) len() int { return len(l.ends) }

// at returns pattern i. The slice stays valid when patterns are added.
func (l *patternList) at(i int) []byte {
	from := l.begin(i)
	return l.bytes[from:l.ends[i]:l.ends[i]]
}

// begin returns the offset of pattern i.
func (l *patternList) begin(i int) int {
	if i == 0 {
		return 0
	}
	return l.ends[i-1]
}

func (l *patternList) add(pattern []byte) {
	l.bytes = append(l.bytes, pattern...)
	l.finish()
}

// finish ends the unfinished pattern.
func (l *patternList) finish() { l.ends = append(l.ends, len(l.bytes)) }

// discard removes the unfinished pattern.
func (l *patternList) discard() { l.bytes = l.bytes[:l.begin(l.len())] }
