package secrets

// texts are texts side by side. They hold no pointers, so that the garbage
// collector has nothing to do with tens of thousands of them. The zero value has
// none.
type texts struct {
	bytes []byte
	ends  []int // in bytes; after the last one, there may be the beginning of another
}

func (t *texts) len() int { return len(t.ends) }

// at is text i. It stays good when others are added.
func (t *texts) at(i int) []byte {
	from := t.begin(i)
	return t.bytes[from:t.ends[i]:t.ends[i]]
}

// begin is where text i begins.
func (t *texts) begin(i int) int {
	if i == 0 {
		return 0
	}
	return t.ends[i-1]
}

// add adds a text.
func (t *texts) add(text []byte) {
	t.bytes = append(t.bytes, text...)
	t.end()
}

// end makes a text of the bytes after the last one.
func (t *texts) end() { t.ends = append(t.ends, len(t.bytes)) }

// drop removes the bytes after the last text.
func (t *texts) drop() { t.bytes = t.bytes[:t.begin(t.len())] }
