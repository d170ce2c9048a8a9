package endtoend_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// Rules S1-S5: the bundled programs run stages whose scripts transform and print their secrets
// in many ways, on the host and in containers. No secret is visible in a log, archive, answer,
// file, command line, container or core dump. leakforms_test.go defines the visible forms, and
// leakhunt_linux_test.go the searched places. leak.md lists the leaks that were inserted
// temporarily to see this test fail.
func TestNoSecretLeaks(t *testing.T) {
	t.Parallel()
	engine := testbed.Docker(t)
	needTool(t, "git", "bash", "dash", "base64", "od", "xxd")
	values := fakes()
	h := newHunt(values)
	h.needles.add("DERIVED", derivedFrom(values))
	h.engine, h.delegate = engine, "v1"
	s := startSite(t, h)
	references := map[string]string{"ENV": "${{secrets.env://DEPLOY}}"}
	for _, name := range []string{"PLAIN", "ODD", "KEY", "CRLFKEY", "EXPRESSION"} {
		references[name] = "${{secrets.file://values.json#" + name + "}}"
	}
	kept, err := json.Marshal(values)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.given, "values.json"), kept, 0o600))
	h.works = []string{filepath.Join(s.dir, "work-v1"), filepath.Join(s.dir, "work-v2")}

	git := newForge(t)
	git.password = values["GIT"]
	git.add(t, "part", "testdata/realuse")
	git.add(t, "project", "testdata/realuse", "part")
	open, talks := engine.NewRegistry(t, "team", values["REGISTRY"]), engine.NewRegistry(t, "team", values["REGISTRY"])
	talks.FailBlobs("denied to team:" + values["REGISTRY"])
	plugins := newPluginServer(t)

	watching, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var watch sync.WaitGroup
	watch.Go(func() { h.watch(watching, t) })
	t.Cleanup(func() {
		stop()
		watch.Wait()
		s.readers.Wait()
		h.round(context.WithoutCancel(t.Context()), t)
		h.searchCommandLines(h.processes.late())
		h.memory(t)
		h.report(t)
	})
	first := s.crashing(t, s.delegate(t, "v1", s.url, "TAGS=v1\nLOG_FORMAT=json\n", "DLITE_SECRET_DEPLOY="+values["ENV"]))
	second := s.second(t)
	vars := secretVariables(values, references, printedSecrets...)
	vars[huntVariable] = h.processes.marker

	t.Run("stages", func(t *testing.T) {
		start := func(request object, check func(*testing.T, api.Stage)) {
			id := request["id"].(string)
			engine.LeavesNothing(t, id)
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				var abort chan struct{}
				if id == "aborted" {
					abort = s.onHold(id + ".hangs")
				}
				check(t, s.run(t, request, abort))
			})
		}
		start(onTheHost(t, values, vars, plugins), func(t *testing.T, st api.Stage) {
			checkSaid(t, s, st, map[string]string{
				"bash": "SUCCESS", "dash": "SUCCESS", "give": "SUCCESS", "later": "SUCCESS", "nowhere": "FAILURE", "noprogram": "FAILURE",
				"fails": "FAILURE", "hangs": "TIMEOUT", "unready": "TIMEOUT", "serves": "SUCCESS", "unresolved": "FAILURE",
				"plugin": "FAILURE", "noplugin": "FAILURE",
			})
		})
		start(inContainers(t, values, vars, open, talks), func(t *testing.T, st api.Stage) {
			checkSaid(t, s, st, map[string]string{
				"say": "SUCCESS", "give": "SUCCESS", "later": "SUCCESS", "fails": "FAILURE", "noprogram": "FAILURE", "hangs": "TIMEOUT",
				"unready": "TIMEOUT", "serves": "SUCCESS", "talking": "FAILURE", "refused": "FAILURE", "pulled": "SUCCESS",
			})
		})
		for _, c := range clones(t, values, vars, git) {
			start(c, func(t *testing.T, st api.Stage) {
				want := api.Success
				if !strings.HasSuffix(st.ID, "-auth") && !strings.HasSuffix(st.ID, "-url") {
					want = api.Failure
				}
				assert.Equal(t, want, st.Status, st.Error)
			})
		}
		start(brokenInit(t, values, vars), func(t *testing.T, st api.Stage) { assert.Equal(t, api.Failure, st.Init.Status) })
		start(labelled(t, values, vars), func(t *testing.T, st api.Stage) {
			assert.Equal(t, api.Failure, st.Init.Status)
			assert.Contains(t, st.Error, `label "team" of network.labels shows a secret`)
		})
		start(aborted(t, values, vars), func(t *testing.T, st api.Stage) { assert.Equal(t, api.Aborted, st.Status) })
		t.Run("protocol 2", func(t *testing.T) {
			t.Parallel()
			s.protocol2(t, second, values)
		})
	})
	s.metrics(t)
	s.crash(t, first, values, vars)

	for _, path := range []string{"/api/stages", "/api/delegates", "/api/stages/host", "/none"} {
		s.call(t, http.MethodGet, path+"?accountId="+s.account, "")
	}
	s.call(t, http.MethodPost, "/api/stages?accountId="+s.account, `{"id":"host","init":"`+values["PREFIX"]+`"`)
	s.call(t, http.MethodPost, "/api/stages?accountId="+s.account, `{"id":"host","init":"`+values["PREFIX"]+`"}`)
	s.call(t, http.MethodPost, "/api/stages?accountId="+s.account, `{"id":"host","timeout_ms":"`+values["PREFIX"]+`"}`)
}
