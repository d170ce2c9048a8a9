package manager

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/delegate-io/dlite/internal/jsonscan"
	"github.com/delegate-io/dlite/manager/api"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// The API refuses members that it does not know, because it would run a stage
// without a misspelt member. Payloads and tasks may have members for foreign
// delegates. There the API refuses only a member whose name is close to a known one.

// shape lists the members that an object of the API may have.
type shape struct {
	open    bool // unknown members pass, unless their names are close to known ones
	members []member
}

// member is a known member. Value describes its objects; nil accepts any value. A
// list has the shape of its elements.
type member struct {
	name  string
	value *shape
	// near marks an object that may have the member which an unknown name in the
	// enclosing object stands for.
	near bool
}

// submissionShape is the shape of a kind of submission, with the bounds of its text.
type submissionShape struct {
	*shape
	bounds textBounds
}

// shapes holds the shape of each kind of submission.
type shapes struct{ stage, task, schedule, limit, steps, pause, abort, connector, connectorTest, perpetual, daemonSet, daemonTask, upgrade submissionShape }

var knownShapes = sync.OnceValue(func() *shapes {
	payload := func(v any) *shape { return shapeOf(reflect.TypeOf(v), true, map[reflect.Type]*shape{}) }
	closed := func(v any) *shape { return shapeOf(reflect.TypeOf(v), false, map[reflect.Type]*shape{}) }
	s := &shapes{
		stage: submissionShape{closed(api.StageRequest{}), submissionBounds}, task: submissionShape{payload(task.Task{}), taskBounds},
		schedule: submissionShape{closed(api.Schedule{}), taskBounds}, limit: submissionShape{closed(api.Limit{}), submissionBounds},
		steps: submissionShape{closed(api.StepsRequest{}), submissionBounds}, pause: submissionShape{closed(api.PauseRequest{}), submissionBounds},
		abort:     submissionShape{closed(api.AbortRequest{}), submissionBounds},
		upgrade:   submissionShape{closed(api.Upgrade{}), submissionBounds},
		connector: submissionShape{closed(api.Connector{}), submissionBounds}, connectorTest: submissionShape{closed(api.ConnectorTestRequest{}), submissionBounds},
		perpetual: submissionShape{closed(api.PerpetualTask{}), submissionBounds},
		daemonSet: submissionShape{closed(api.DaemonSet{}), taskBounds}, daemonTask: submissionShape{closed(api.DaemonTask{}), taskBounds},
	}
	execute := payload(stage.ExecuteRequest{})
	execute.member("run").near = true
	for _, steps := range []*member{s.stage.member("steps"), s.stage.member("hold").value.member("announced"), s.steps.member("steps")} {
		*steps.value.member("data") = member{"data", execute, true}
	}
	*s.stage.member("init") = member{"init", payload(stage.InitRequest{}), true}
	*s.stage.member("cleanup") = member{"cleanup", payload(stage.CleanupRequest{}), false}
	s.task.members = append(s.task.members, closed(control{}).members...)
	*s.schedule.member("stage") = member{"stage", s.stage.shape, true}
	*s.schedule.member("task") = member{"task", s.task.shape, true}
	return s
})

// shapeOf returns the shape of a struct, by its JSON names.
func shapeOf(t reflect.Type, open bool, done map[reflect.Type]*shape) *shape {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() == "time" {
		return nil
	}
	if s, ok := done[t]; ok {
		return s
	}
	s := &shape{open: open}
	done[t] = s
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.members = append(s.members, shapeOf(f.Type, open, done).members...)
		case f.IsExported() && name != "" && name != "-":
			s.members = append(s.members, member{name: name, value: shapeOf(f.Type, open, done)})
		}
	}
	return s
}

// member returns the known member with a name. Case does not matter, as in
// encoding/json.
func (s *shape) member(name string) *member {
	i := slices.IndexFunc(s.members, func(m member) bool { return strings.EqualFold(m.name, name) })
	if i < 0 {
		return nil
	}
	return &s.members[i]
}

// maxUnknown is the largest number of unknown members of a submission that are
// compared with the known ones. It bounds the time for a submission.
const maxUnknown = 100

// check returns an error that names the first unknown member of a JSON text. Path is
// the path of the text itself. The error wraps [ErrInvalid]. Text that is not valid
// JSON passes, because the decoder reports it.
func (s *shape) check(text []byte, path string) error {
	c := memberCheck{}
	c.value(s, text, path)
	return c.err
}

// memberCheck is one run of [shape.check].
type memberCheck struct {
	unknown int
	err     error
}

func (c *memberCheck) value(s *shape, text []byte, path string) {
	in := jsonscan.New(text)
	in.Space()
	if text = text[in.Pos():]; s == nil || len(text) == 0 || c.err != nil {
		return
	}
	switch text[0] {
	case '{':
		in.Object(0, func(name, value, _ []byte) { c.member(s, jsonscan.Unquote(name), value, path) })
	case '[':
		var list []json.RawMessage
		_ = json.Unmarshal(text, &list) // the decoder reports invalid JSON
		for i, element := range list {
			c.value(s, element, path+"["+strconv.Itoa(i)+"]")
		}
	}
}

func (c *memberCheck) member(s *shape, name string, value []byte, path string) {
	if c.err != nil {
		return
	}
	at := joinPath(path, name)
	if m := s.member(name); m != nil {
		c.value(m.value, value, at)
		return
	}
	c.unknown++
	if s.open && c.unknown > maxUnknown {
		return
	}
	switch similar := s.similar(name); {
	case similar != "":
		c.err = fmt.Errorf("%w: %s: unknown member; did you mean %q?", ErrInvalid, at, similar)
	case !s.open:
		c.err = fmt.Errorf("%w: %s: unknown member; the members here are %s", ErrInvalid, at, s.names())
	}
}

func (s *shape) names() string {
	names := make([]string, 0, len(s.members))
	for _, m := range s.members {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// maxPathName is the largest number of bytes of an unknown name that an error
// repeats.
const maxPathName = 64

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// joinPath returns the path of a member of the object at path, like
// steps[0].data.run. Names with special characters are quoted in brackets.
func joinPath(path, name string) string {
	name = cut(name, maxPathName)
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// similar returns the path of the known member that an unknown name probably stands
// for. It searches this object and the near objects below it. An equal name comes
// before a close one. The result is "" if no name is close enough.
func (s *shape) similar(name string) string {
	objects := s.nearby()
	for _, o := range objects {
		if m := o.member(name); m != nil {
			return joinPath(o.path, m.name)
		}
	}
	for _, o := range objects {
		if m := o.closest(name); m != nil {
			return joinPath(o.path, m.name)
		}
	}
	return ""
}

// shapeAt is a shape and its path.
type shapeAt struct {
	*shape
	path string
}

// nearby returns s and the near objects below it, ordered by depth.
func (s *shape) nearby() []shapeAt {
	all := []shapeAt{{s, ""}}
	for i := 0; i < len(all); i++ {
		for _, m := range all[i].members {
			if m.near {
				all = append(all, shapeAt{m.value, joinPath(all[i].path, m.name)})
			}
		}
	}
	return all
}

// closest returns the member whose name is closest to name, or nil if none is close
// enough.
func (s *shape) closest(name string) *member {
	var found *member
	best := len(name)
	for i := range s.members {
		m := &s.members[i]
		if d, ok := nameDistance(name, m.name); ok && d < best {
			found, best = m, d
		}
	}
	return found
}

// nameDistance returns the number of letters to change, add, remove or swap between
// two names, and reports whether that is probably a typing error. It ignores case,
// "_" and "-". The beginning of a known name counts as distance 2.
func nameDistance(name, known string) (int, bool) {
	if len(name) > maxPathName {
		return 0, false
	}
	a, b := bareName(name), bareName(known)
	allowed := 2
	switch short := min(utf8.RuneCountInString(a), utf8.RuneCountInString(b)); {
	case short < 2:
		allowed = 0
	case short < 6:
		allowed = 1
	}
	if diff := len(a) - len(b); diff >= -allowed*utf8.UTFMax && diff <= allowed*utf8.UTFMax {
		if d := editDistance([]rune(a), []rune(b)); d <= allowed {
			return d, true
		}
	}
	return 2, len(a) >= 3 && strings.HasPrefix(b, a)
}

func bareName(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// editDistance returns the Damerau-Levenshtein distance of two texts. Each letter
// takes part in at most one swap.
func editDistance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}

// checkNotEmpty returns an error for a stage without steps and without an init.
func checkNotEmpty(req *api.StageRequest) error {
	o, err := parseObject("init", req.Init)
	if err != nil || len(req.Steps) > 0 || len(o) > 0 || req.Hold != nil {
		return err
	}
	return fmt.Errorf(`%w: the stage is empty: add "steps", like [{"data":{"run":{"entrypoint":["sh","-c"],"commands":["make test"]}}}], or an "init"`, ErrInvalid)
}
