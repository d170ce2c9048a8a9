package secrets

import "sync"

// index is what a Set looks for, as of some moment. It is immutable.
type index struct {
	finders []*finder
	deep    func() *machine // of all needles; built when first asked for
}

// newIndex takes finders of some classes, several of one class too.
func newIndex(finders []*finder) *index {
	return &index{
		finders: finders,
		deep: sync.OnceValue(func() *machine {
			var all [][]byte
			for _, f := range finders {
				for i := range f.needles.len() {
					all = append(all, f.needles.at(i))
				}
			}
			return compile(all)
		}),
	}
}

// with is the index with fresh needles too, none of which is empty. Of each class
// there are several finders, each with at least growth times as many needles as the
// next: needles come in at the last, and finders of about one size become one.
// So a needle is entered growth times for each of the few sizes at most, and what
// an addition costs does not depend on what is there already, on average.
func (x *index) with(fresh *texts) *index {
	const growth = 8
	var added [len(classes)]int
	for i := range fresh.len() {
		added[classOf(fresh.at(i))]++
	}
	var finders []*finder
	for c, n := range added {
		var same []*finder
		for _, f := range x.finders {
			if f.q == classes[c].q {
				same = append(same, f)
			}
		}
		if n > 0 {
			sources := []*texts{fresh}
			for last := len(same) - 1; last >= 0 && n*growth > same[last].needles.len(); last-- {
				n += same[last].needles.len()
				sources = append(sources, &same[last].needles)
				same = same[:last]
			}
			same = append(same, newFinder(c, n, sources))
		}
		finders = append(finders, same...)
	}
	return newIndex(finders)
}
