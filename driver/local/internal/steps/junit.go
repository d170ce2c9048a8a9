package steps

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/delegate-io/dlite/task/stage"
)

// Limits for the part of a report that a summary contains. Longer text is cut. A deeper file is
// rejected.
const (
	junitDepth       = 64
	junitNameLimit   = 300  // bytes
	junitTextLimit   = 2000 // bytes
	junitCountLimit  = 1_000_000
	junitSecondLimit = 1_000_000
)

// junit reads one JUnit report: nested testsuites and testsuite elements. The test cases count. The
// numbers of a suite count only if it lists no test cases. A test case with an error and a failure
// counts once, as an error.
type junit struct {
	sum    stage.TestSummary
	millis float64
	limit  int  // of sum.Failures
	begun  bool // the root element has been read
	mask   func(string) string

	suites []junitSuite
	test   *junitCase
	text   *strings.Builder // of the current failure
}

type junitSuite struct {
	name    string
	attrs   map[string]string
	counted bool // this suite or a suite in it has counted tests
}

type junitCase struct {
	failure                 stage.TestFailure
	millis                  float64
	failed, broken, skipped bool
}

// parseJUnit summarizes a report. Its errors quote no part of the report. It keeps the first limit
// failures, and masks their texts before it cuts them.
func parseJUnit(report []byte, limit int, mask func(string) string) (*stage.TestSummary, error) {
	j := &junit{limit: limit, mask: mask}
	d := xml.NewDecoder(bytes.NewReader(inUTF8(report)))
	d.CharsetReader = charset
	depth := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, _ := d.InputPos()
			return nil, fmt.Errorf("line %d: it is not well-formed XML", line)
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth++; depth > junitDepth {
				return nil, fmt.Errorf("it is nested deeper than %d elements", junitDepth)
			}
			if depth == 1 && t.Name.Local != "testsuites" && t.Name.Local != "testsuite" {
				return nil, errors.New("it is not a JUnit report")
			}
			j.begun = true
			j.start(t)
		case xml.EndElement:
			depth--
			j.end(t.Name.Local)
		case xml.CharData:
			if j.text != nil {
				j.text.Write(t)
			}
		}
	}
	if !j.begun {
		return nil, errors.New("it is empty")
	}
	j.sum.DurationMillis = int64(math.Round(j.millis))
	return &j.sum, nil
}

func (j *junit) start(t xml.StartElement) {
	switch t.Name.Local {
	case "testsuites", "testsuite":
		if j.test == nil {
			attrs := attributes(t)
			j.suites = append(j.suites, junitSuite{name: j.shorten(attrs["name"], junitNameLimit), attrs: attrs})
		}
	case "testcase":
		if j.test == nil && len(j.suites) > 0 {
			j.startTest(attributes(t))
		}
	case "failure", "error", "skipped":
		j.outcome(t)
	}
}

func (j *junit) startTest(attrs map[string]string) {
	j.test = &junitCase{
		failure: stage.TestFailure{
			Suite: j.suites[len(j.suites)-1].name,
			Class: j.shorten(attrs["classname"], junitNameLimit),
			Name:  j.shorten(attrs["name"], junitNameLimit),
		},
		millis: milliseconds(attrs["time"]),
	}
	// GoogleTest reports skipped tests in these attributes.
	switch {
	case attrs["status"] == "notrun", attrs["status"] == "disabled", attrs["result"] == "skipped", attrs["result"] == "suppressed":
		j.test.skipped = true
	}
}

// outcome notes the result of a test case. Outside a test case the result belongs to the suite, for
// example to its set-up.
func (j *junit) outcome(t xml.StartElement) {
	if j.text != nil || len(j.suites) == 0 {
		return // inside another outcome
	}
	if j.test == nil {
		if t.Name.Local == "skipped" {
			return
		}
		j.startTest(nil)
		j.test.failure.Name = j.test.failure.Suite
		defer j.endTest()
	}
	attrs := attributes(t)
	first := !j.test.failed && !j.test.broken
	switch t.Name.Local {
	case "failure":
		j.test.failed = true
	case "error":
		j.test.broken = true
	case "skipped":
		j.test.skipped = true
		return
	}
	if message := attrs["message"]; first && message != "" {
		j.test.failure.Message = j.shorten(message, junitTextLimit)
	} else if first {
		j.text = &strings.Builder{}
	}
}

func (j *junit) end(name string) {
	switch name {
	case "failure", "error":
		if j.text != nil && j.test != nil {
			j.test.failure.Message = j.shorten(strings.TrimSpace(j.text.String()), junitTextLimit)
		}
		j.text = nil
	case "testcase":
		if j.test != nil {
			j.endTest()
		}
	case "testsuites", "testsuite":
		if j.test == nil && len(j.suites) > 0 {
			j.endSuite()
		}
	}
}

func (j *junit) endTest() {
	t := j.test
	j.test, j.text = nil, nil
	j.suites[len(j.suites)-1].counted = true
	j.millis = min(j.millis+t.millis, junitSecondLimit*1000)
	j.sum.Total++
	switch {
	case t.broken:
		j.sum.Errors++
	case t.failed:
		j.sum.Failed++
	case t.skipped:
		j.sum.Skipped++
		return
	default:
		j.sum.Passed++
		return
	}
	if len(j.sum.Failures) < j.limit {
		j.sum.Failures = append(j.sum.Failures, t.failure)
	}
}

// endSuite uses the numbers of the suite if it lists no test cases.
func (j *junit) endSuite() {
	s := j.suites[len(j.suites)-1]
	j.suites = j.suites[:len(j.suites)-1]
	if !s.counted {
		total := count(s.attrs["tests"])
		failed := min(count(s.attrs["failures"]), total)
		broken := min(count(s.attrs["errors"]), total-failed)
		skipped := min(max(count(s.attrs["skipped"]), count(s.attrs["disabled"])), total-failed-broken)
		j.sum.Total += total
		j.sum.Failed += failed
		j.sum.Errors += broken
		j.sum.Skipped += skipped
		j.sum.Passed += total - failed - broken - skipped
		if total > 0 {
			j.millis = min(j.millis+milliseconds(s.attrs["time"]), junitSecondLimit*1000)
			s.counted = true
		}
	}
	if n := len(j.suites); n > 0 && s.counted {
		j.suites[n-1].counted = true
	}
}

func attributes(t xml.StartElement) map[string]string {
	attrs := make(map[string]string, len(t.Attr))
	for _, a := range t.Attr {
		if a.Name.Space == "" {
			attrs[a.Name.Local] = a.Value
		}
	}
	return attrs
}

func count(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil || n < 0 {
		return 0
	}
	return min(n, junitCountLimit)
}

// milliseconds reads seconds. Some tools write them as 1,234.5.
func milliseconds(s string) float64 {
	v, err := strconv.ParseFloat(decimalPoint(strings.TrimSpace(s)), 64)
	if err != nil || !(v > 0) { // NaN too
		return 0
	}
	return min(v, junitSecondLimit) * 1000
}

// decimalPoint returns a number with a point as the decimal separator and without other separators. Tools
// write numbers in the form of the machine's language: 1,234.5 or 1.234,5 or 0,5. The last separator is the
// decimal one, but the same separator twice separates thousands.
func decimalPoint(s string) string {
	i := strings.LastIndexAny(s, ".,")
	if i < 0 {
		return s
	}
	whole, fraction := s[:i], s[i+1:]
	if strings.Contains(whole, s[i:i+1]) {
		whole, fraction = whole+fraction, ""
	}
	return strings.NewReplacer(",", "", ".", "").Replace(whole) + "." + fraction
}

// shorten masks s and then cuts it.
func (j *junit) shorten(s string, limit int) string { return cut(j.mask(s), limit) }

// cut shortens s to limit bytes, at the boundary of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "..."
}

// inUTF8 converts a report in UTF-16, which PowerShell writes by default, and removes the byte order mark.
func inUTF8(b []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xfe}), bytes.HasPrefix(b, []byte{'<', 0}):
		order = binary.LittleEndian
	case bytes.HasPrefix(b, []byte{0xfe, 0xff}), bytes.HasPrefix(b, []byte{0, '<'}):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(b, []byte("\ufeff"))
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	return []byte(strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff"))
}

// charset decodes the encodings of reports other than UTF-8.
func charset(label string, in io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be": // inUTF8 has converted UTF-16
		return in, nil
	case "iso-8859-1", "iso8859-1", "latin1", "windows-1252", "cp1252":
		b, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		runes := make([]rune, len(b))
		for i, c := range b {
			runes[i] = rune(c)
		}
		return strings.NewReader(string(runes)), nil
	}
	return nil, errors.New("the encoding is not known")
}
