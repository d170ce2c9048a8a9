package manager

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/delegate-io/dlite/internal/jsonscan"
	"github.com/delegate-io/dlite/task"
)

// The limits of a single call. docs/manager.md gives the reasons in its section
// "Bounds". [Budget] bounds the total of the calls of an account.
const (
	// maxDepth is the largest number of objects and lists that enclose each other. A
	// command encloses a payload in a few more levels, and encoding/json, which must
	// read the command again, allows 10,000. Some checks read a value once per level.
	maxDepth = 100
	// maxElements is the largest number of elements of a list and of members of an
	// object, except in the data of single tasks.
	maxElements = 10_000
	// maxText is the largest size of a string, and maxNumber of a number, in bytes of
	// JSON.
	maxText   = 16 << 20
	maxNumber = 64

	// maxID is the longest id that a submitter may choose, in bytes. Ids are parts of
	// paths.
	maxID = 256
	// maxName is the longest name, version, host name, type, tag or selector.
	maxName = 1 << 10
	// maxNames is the largest number of selectors, tags or task types.
	maxNames = 1_000
	// maxLabels is the largest number of labels of a stage. Each one is a group in the
	// queue.
	maxLabels = 20
	// maxSteps is the largest number of steps of a stage. An empty step takes three
	// bytes in a request, but hundreds in memory.
	maxSteps = maxElements
	// maxCleanup is the largest payload of a cleanup, in bytes. The manager keeps it
	// for lost delegates after the end of the stage.
	maxCleanup = 1 << 20

	// maxDuration is the longest time-out or back-off: ten years. The sum of a point in
	// time and several durations must be representable.
	maxDuration = task.Millis(10 * 365 * 24 * 60 * 60 * 1000)
	// maxAttempts is the largest number of attempts of a stage or single task.
	maxAttempts = 100
	// maxCapacity is the largest number of slots of a delegate, and maxRunning of a
	// limit. Their sums must not overflow.
	maxCapacity = math.MaxInt32
	maxRunning  = math.MaxInt32

	// maxLimits is the largest number of limits of an account.
	maxLimits = 1_000

	// maxCron and maxZone are the longest cron and time_zone of a schedule.
	maxCron = 256
	maxZone = 64
	// minInterval is the shortest interval of "@every", and its unit.
	minInterval = time.Second

	// maxMessage is the longest message of a delegate that the manager stores, in bytes.
	// Messages appear in lists and logs. maxCode is the longest code that it stores. All
	// known codes are far shorter.
	maxMessage = 4 << 10
	maxCode    = 64
	// maxConcealed is the size of the beginning of a message in which the manager hides
	// secret outputs, in bytes. It is much larger than maxMessage.
	maxConcealed = 64 << 10
	// maxOutputs is the largest size of the outputs, and of the output variables, of an
	// answer in bytes of JSON. maxSecretOutputs is the largest number of secret ones:
	// each of them is searched in all others.
	maxOutputs       = 1 << 20
	maxSecretOutputs = 100
)

// checkCount returns an error if a list or object is too long.
func checkCount(path string, n, most int) error {
	if n > most {
		return fmt.Errorf("%w: %s has %d elements; it may have at most %d", ErrInvalid, path, n, most)
	}
	return nil
}

// checkSize returns an error if a text is too long.
func checkSize(path string, n, most int) error {
	if n > most {
		return fmt.Errorf("%w: %s has %d bytes; it may have at most %d", ErrInvalid, path, n, most)
	}
	return nil
}

// checkNumber returns an error if a number is not between 0 and most.
func checkNumber[N ~int | ~int64](path string, n, most N) error {
	if n < 0 || n > most {
		return fmt.Errorf("%w: %s is %d; it must be from 0 to %d", ErrInvalid, path, n, most)
	}
	return nil
}

// checkDuration returns an error if a duration in milliseconds is negative or too long.
func checkDuration[M ~int64](path string, d M) error { return checkNumber(path, d, M(maxDuration)) }

// checkNames returns an error if a list of selectors, tags or types is too long, or one
// of them is.
func checkNames(path string, names []string) error {
	if err := checkCount(path, len(names), maxNames); err != nil {
		return err
	}
	for i, name := range names {
		if err := checkSize(fmt.Sprintf("%s[%d]", path, i), len(name), maxName); err != nil {
			return err
		}
	}
	return nil
}

// checkID refuses an id that cannot be a segment of a path. Delegates could not
// acquire such a task.
func checkID(path, id string) error {
	switch {
	case len(id) > maxID:
		return checkSize(path, len(id), maxID)
	case id == "." || id == "..":
		return fmt.Errorf("%w: %s is %q, which has another meaning in a path", ErrInvalid, path, id)
	case strings.ContainsFunc(id, unicode.IsControl) || !utf8.ValidString(id):
		return fmt.Errorf("%w: %s contains a character that cannot be printed", ErrInvalid, path)
	}
	return nil
}

// checkOneOf returns an error if a value is none of the possible values.
func checkOneOf(path, value string, possible ...string) error {
	if slices.Contains(possible, value) {
		return nil
	}
	list := strings.Join(possible[:len(possible)-1], ", ") + " or " + possible[len(possible)-1]
	return fmt.Errorf("%w: %s is %q; it must be %s", ErrInvalid, path, cut(value, maxPathName), list)
}

// textBounds bound a JSON text of any form.
type textBounds struct{ depth, elements, text, number int }

var (
	// submissionBounds apply to stages, schedules, limits, registrations and the answers
	// to parts of stages.
	submissionBounds = textBounds{maxDepth, maxElements, maxText, maxNumber}
	// taskBounds apply to single tasks, whose data the manager only passes on.
	taskBounds = textBounds{maxDepth, math.MaxInt, maxText, maxNumber}
	// answerBounds apply to the answer to a single task.
	answerBounds = textBounds{maxDepth, math.MaxInt, math.MaxInt, maxNumber}
	// unbounded applies to the message around an answer.
	unbounded = textBounds{jsonscan.MaxDepth, math.MaxInt, math.MaxInt, math.MaxInt}
)

// check returns an error that names the first value of a JSON text that exceeds the
// bounds. Path is the path of the text. Text that is not valid JSON passes, because the
// decoder reports it.
func (b textBounds) check(text []byte, path string) error {
	c := boundsCheck{textBounds: b, in: jsonscan.New(text)}
	c.in.Space()
	if c.value(text, 0); c.problem == "" {
		return nil
	}
	for _, part := range slices.Backward(c.path) {
		path = part(path)
	}
	if path == "" {
		path = "the body"
	}
	return fmt.Errorf("%w: %s %s", ErrInvalid, path, c.problem)
}

// boundsCheck is one run of [textBounds.check].
type boundsCheck struct {
	textBounds
	in      jsonscan.Scanner
	problem string
	path    []func(string) string // the parts of the path of the problem, the last one first
}

// refuse records a problem. It returns false.
func (c *boundsCheck) refuse(format string, args ...any) bool {
	c.problem = fmt.Sprintf(format, args...)
	return false
}

// value checks the next value. It reports false if the check must stop.
func (c *boundsCheck) value(text []byte, depth int) bool {
	begin := c.in.Pos()
	if begin == len(text) {
		return false
	}
	switch text[begin] {
	case '{', '[':
		if depth == c.depth {
			return c.refuse("is nested too deeply; %d levels are possible", c.depth)
		}
		return c.elements(text, depth, text[begin] == '{')
	case '"':
		inside, ok := c.in.String()
		if len(inside) > c.text {
			return c.refuse("has %d bytes; it may have at most %d", len(inside), c.text)
		}
		return ok
	default:
		ok := c.in.Value(depth)
		if n := c.in.Pos() - begin; ok && n > c.number {
			return c.refuse("is a number of %d bytes; it may have at most %d", n, c.number)
		}
		return ok
	}
}

// elements checks the elements of a list, or the members of an object.
func (c *boundsCheck) elements(text []byte, depth int, object bool) bool {
	c.in.Seek(c.in.Pos() + 1)
	c.in.Space()
	if c.in.Skip(']') || c.in.Skip('}') {
		return true
	}
	for n := 0; ; n++ {
		if n == c.textBounds.elements {
			return c.refuse("has more than %d elements; it may have at most %[1]d", n)
		}
		c.in.Space()
		part := func(path string) string { return fmt.Sprintf("%s[%d]", path, n) }
		if object {
			name, ok := c.in.String()
			if c.in.Space(); !ok || !c.in.Skip(':') {
				return false
			}
			if len(name) > c.text {
				return c.refuse("has a member with a name of %d bytes; it may have at most %d", len(name), c.text)
			}
			c.in.Space()
			part = func(path string) string { return joinPath(path, jsonscan.Unquote(name)) }
		}
		if !c.value(text, depth+1) {
			if c.problem != "" {
				c.path = append(c.path, part)
			}
			return false
		}
		c.in.Space()
		if !c.in.Skip(',') {
			return c.in.Skip(']') || c.in.Skip('}')
		}
	}
}
