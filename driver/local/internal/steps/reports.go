package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// Limits for reading the test reports of a step.
const (
	reportCount    = 1000
	reportSize     = 16 << 20  // bytes of one report
	reportSizes    = 128 << 20 // bytes of all reports
	reportEntries  = 200_000   // files and directories that a search may visit
	reportFailures = 50        // failures in the summary
	reportProblems = 20
)

// summarizeTests adds a summary of the step's test reports to res (rule D5). The summary lists the
// problems with reading them. A problem does not fail the step.
func (r *Run) summarizeTests(ctx context.Context, res *driver.Result) {
	requested := r.Step.TestReport
	if requested == nil || requested.Kind == "" && len(requested.Junit.Paths) == 0 {
		return
	}
	s := &reports{ctx: ctx, sum: &stage.TestSummary{}, mask: r.maskText}
	res.Tests = s.sum
	if !strings.EqualFold(requested.Kind, "junit") && requested.Kind != "" {
		s.problem(fmt.Sprintf("reports of kind %q are not known", cut(r.maskText(requested.Kind), junitNameLimit)))
	} else if root, base, err := r.reportRoot(); err != nil {
		s.problem(err.Error())
	} else {
		s.root = root
		for _, pattern := range requested.Junit.Paths {
			s.search(r.reportPattern(base, pattern), pattern)
		}
		s.read()
		if root != r.Files.workspace {
			_ = root.Close()
		}
	}
	r.Out.Printf("%s", s)
}

// reportRoot returns the directory that contains all reports, and the working directory of the step in
// it. The workspace is open already.
func (r *Run) reportRoot() (root *os.Root, base string, err error) {
	dir := r.Step.WorkingDir
	if dir == "" {
		return r.Files.workspace, ".", nil
	}
	if rel, ok := r.Tx.InWorkspace(dir); ok {
		return r.Files.workspace, filepath.ToSlash(rel), nil
	}
	if r.Step.Image != "" || !filepath.IsAbs(dir) {
		return nil, "", errors.New("the working directory is not in the workspace: its reports cannot be read")
	}
	root, err = os.OpenRoot(dir)
	if err != nil {
		return nil, "", errors.New("the working directory cannot be read")
	}
	return root, ".", nil
}

// reportPattern converts a pattern of the step to a pattern relative to the root. It returns "" for a
// pattern outside the root.
func (r *Run) reportPattern(base, pattern string) string {
	full := filepath.ToSlash(pattern)
	switch {
	case path.IsAbs(full) || filepath.IsAbs(pattern):
		rel, ok := r.Tx.InWorkspace(pattern)
		if !ok && r.Step.Image == "" && filepath.IsAbs(r.Step.WorkingDir) {
			rel, ok = Below(r.Step.WorkingDir, pattern)
		}
		if !ok {
			return ""
		}
		full = filepath.ToSlash(rel)
	default:
		// The path of the directory itself is not a pattern.
		full = path.Join(strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(base), full)
	}
	if full == ".." || strings.HasPrefix(full, "../") {
		return ""
	}
	return full
}

// reports searches and reads the reports of one step.
type reports struct {
	ctx  context.Context //nolint:containedctx // lives as long as one call of summarizeTests
	root *os.Root
	sum  *stage.TestSummary
	mask func(string) string

	files    []string
	found    map[string]bool
	visited  map[string]bool // of one pattern: directories with the remaining segments
	entries  int
	problems int
	count    int // of the reports that were read
}

func (s *reports) problem(text string) {
	s.problems++
	if s.problems <= reportProblems {
		s.sum.Problems = append(s.sum.Problems, strings.ToValidUTF8(text, "?"))
	}
}

// search finds the files that match pattern. "*", "?" and "[...]" match within a name, "**" matches
// any number of directories.
func (s *reports) search(pattern, requested string) {
	requested = cut(s.mask(requested), junitNameLimit)
	if pattern == "" {
		s.problem(fmt.Sprintf("%q is not in the workspace", requested))
		return
	}
	if _, err := path.Match(pattern, ""); err != nil {
		s.problem(fmt.Sprintf("%q is not a pattern", requested))
		return
	}
	segments := slices.CompactFunc(strings.Split(pattern, "/"), func(a, b string) bool { return a == "**" && b == "**" })
	if segments[len(segments)-1] == "**" {
		segments = append(segments, "*")
	}
	before := len(s.found)
	s.visited = map[string]bool{}
	s.walk(".", segments)
	if len(s.found) == before && s.entries <= reportEntries {
		s.problem(fmt.Sprintf("no file matches %q", requested))
	}
}

func (s *reports) walk(dir string, segments []string) {
	key := fmt.Sprintf("%d %s", len(segments), dir)
	if s.visited[key] || s.ctx.Err() != nil || s.entries > reportEntries {
		return
	}
	s.visited[key] = true
	segment, rest := segments[0], segments[1:]
	switch {
	case segment == "**":
		s.walk(dir, rest)
		s.list(dir, func(e fs.DirEntry) {
			if e.IsDir() { // not a link to a directory
				s.walk(path.Join(dir, e.Name()), segments)
			}
		})
	case !strings.ContainsAny(segment, `*?[\`):
		name := path.Join(dir, segment)
		if info, err := s.root.Lstat(name); err == nil {
			s.visit(name, rest, info.IsDir())
		}
	default:
		s.list(dir, func(e fs.DirEntry) {
			if ok, err := path.Match(segment, e.Name()); ok && err == nil {
				s.visit(path.Join(dir, e.Name()), rest, e.IsDir())
			}
		})
	}
}

// visit continues with a name that matches a segment.
func (s *reports) visit(name string, rest []string, isDir bool) {
	switch {
	case len(rest) > 0 && isDir:
		s.walk(name, rest)
	case len(rest) == 0 && !isDir && !s.found[name]:
		if s.found == nil {
			s.found = map[string]bool{}
		}
		s.found[name] = true
		s.files = append(s.files, name)
	}
}

// list calls f for the entries of dir, up to the limit of entries.
func (s *reports) list(dir string, f func(fs.DirEntry)) {
	d, err := s.root.OpenFile(dir, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	var all []fs.DirEntry
	for s.entries <= reportEntries {
		some, err := d.ReadDir(500)
		s.entries += len(some)
		all = append(all, some...)
		if err != nil || len(some) == 0 {
			break
		}
	}
	// Close before f opens deeper directories.
	_ = d.Close()
	for _, e := range all {
		f(e)
	}
}

// read reads the reports in the order of their names.
func (s *reports) read() {
	if s.entries > reportEntries {
		s.problem(fmt.Sprintf("the search stopped after %d files and directories", reportEntries))
	}
	slices.Sort(s.files)
	if len(s.files) > reportCount {
		s.problem(fmt.Sprintf("%d files match; the first %d are read", len(s.files), reportCount))
		s.files = s.files[:reportCount]
	}
	size := 0
	for _, name := range s.files {
		if s.ctx.Err() != nil {
			s.problem("the time-out ended before all reports were read")
			return
		}
		b, err := readFile(s.root, filepath.FromSlash(name), reportSize)
		if size += len(b); err == nil && size > reportSizes {
			s.problem(fmt.Sprintf("the reports are larger than %d bytes together; the others are not read", reportSizes))
			return
		}
		var one *stage.TestSummary
		if err == nil {
			one, err = parseJUnit(b, reportFailures-len(s.sum.Failures), s.mask)
		}
		if err != nil {
			s.problem(fmt.Sprintf("%s: %v", cut(s.mask(name), junitNameLimit), err))
			continue
		}
		s.add(one)
	}
}

func (s *reports) add(one *stage.TestSummary) {
	s.count++
	s.sum.Total += one.Total
	s.sum.Passed += one.Passed
	s.sum.Failed += one.Failed
	s.sum.Errors += one.Errors
	s.sum.Skipped += one.Skipped
	s.sum.DurationMillis += one.DurationMillis
	s.sum.Failures = append(s.sum.Failures, one.Failures...)
}

// String returns the line for the output of the step.
func (s *reports) String() string {
	line := fmt.Sprintf("Tests: %d (%d passed, %d failed, %d errors, %d skipped)",
		s.sum.Total, s.sum.Passed, s.sum.Failed, s.sum.Errors, s.sum.Skipped)
	if s.sum.DurationMillis > 0 { // some tools report no durations
		line += fmt.Sprintf(" in %v", time.Duration(s.sum.DurationMillis)*time.Millisecond)
	}
	if line += fmt.Sprintf(", from %d report", s.count); s.count != 1 {
		line += "s"
	}
	if s.problems > 0 {
		first := strings.ReplaceAll(s.sum.Problems[0], "\n", " ")
		if s.problems == 1 {
			return line + "; a problem: " + first
		}
		line += fmt.Sprintf("; %d problems, the first: %s", s.problems, first)
	}
	return line
}
