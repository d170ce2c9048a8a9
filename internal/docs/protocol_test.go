package docs_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/delegate-io/dlite/client"
	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/logheader"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// members adds the JSON names of a type's fields, and those of the types in it.
func members(t reflect.Type, names, seen map[string]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		members(t.Elem(), names, seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if !strings.HasPrefix(t.PkgPath(), "github.com/delegate-io/dlite/") && t.Name() != "" || seen[t.String()] && t.Name() != "" {
		return
	}
	seen[t.String()] = true
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = true
		}
		if f.IsExported() {
			members(f.Type, names, seen)
		}
	}
}

// docs/protocol.md has each member that goes over the wire.
func TestProtocolPageHasAllMembers(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	seen := map[string]bool{}
	for _, v := range []any{
		client.Registration{}, client.Unregistration{}, task.Task{}, logger.Line{},
		stage.InitRequest{}, stage.InitResponse{}, stage.ExecuteRequest{}, stage.ExecuteResponse{},
		stage.CleanupRequest{}, stage.CleanupResponse{},
		envelope.Init{}, envelope.Execute{}, envelope.Cleanup{}, envelope.Capacity{}, envelope.CapacityResponse{},
		agent.Health{}, agent.SetupRequest{}, agent.SetupResponse{}, agent.StartStepRequest{},
		agent.DestroyRequest{}, agent.Error{}, agent.Boot{},
	} {
		members(reflect.TypeOf(v), names, seen)
	}
	for _, name := range []string{
		"wait", "since", "Dlite-Cursor",
		logheader.Token, logheader.Writer, logheader.Resume, logheader.Complete, task.CodeHeader,
	} {
		names[name] = true
	}
	assert.Greater(t, len(names), 150)
	page := readPage(t, "docs/protocol.md")
	for name := range names {
		// As a whole word: "id" is not in "delegateId".
		word := regexp.MustCompile(`(^|[^A-Za-z_-])` + regexp.QuoteMeta(name) + `([^A-Za-z_-]|$)`)
		assert.True(t, word.MatchString(page), "docs/protocol.md does not have %q", name)
	}
}
