package endtoend_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/manager/api"
)

// object is a JSON object in a request.
type object = map[string]any

// printedSecrets lists the secrets that testdata/leak/say.sh prints.
var printedSecrets = []string{"PLAIN", "ODD", "PREFIX", "LONGER", "KEY", "CRLFKEY", "EXPRESSION", "WORD", "ENV"}

// secretVariables returns the variables of steps that print or export secrets. For secrets
// from another source the step has references.
func secretVariables(values map[string]string, references map[string]string, names ...string) object {
	vars := object{}
	for _, name := range names {
		vars["S_"+name] = values[name]
		if ref, ok := references[name]; ok {
			vars["S_"+name] = ref
		}
	}
	return vars
}

// saying returns the further members of a step that runs say.sh.
func saying(values map[string]string, names ...string) object {
	vars := object{
		"NAMES": strings.Join(names, " "), "SPLIT": "PLAIN KEY",
		"LENGTHS": "65500 71650", // a secret crosses the end of a chunk
	}
	n := 0
	seen := map[string]bool{}
	for _, name := range names {
		for _, f := range forms(values[name]) {
			if !seen[f.text] && !strings.Contains(f.text, "${{") && !strings.Contains(f.text, "<{") {
				seen[f.text] = true
				vars[fmt.Sprintf("E_%d", n)] = f.text
				n++
			}
		}
	}
	return object{"environment": vars}
}

// halves returns the two parts of MADE.
func halves(values map[string]string) object {
	return object{"environment": object{"HALF": values["MADE"][:20], "OTHER_HALF": values["MADE"][20:]}}
}

func with(o object, more object) object {
	all := object{}
	for _, m := range []object{o, more} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func leakScript(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/leak", name))
	require.NoError(t, err)
	return string(text)
}

// leakStage builds the request for a stage.
type leakStage struct {
	t      *testing.T
	id     string
	values map[string]string
	vars   object
	init   object
	steps  []object
}

func (l *leakStage) step(id string, data object) *leakStage {
	vars, _ := data["environment"].(object)
	data["environment"] = with(with(l.vars, object{"HUNT": l.id + "." + id}), vars)
	l.steps = append(l.steps, object{"id": id, "run_on": "always", "data": data})
	return l
}

func (l *leakStage) script(id, shell, text string, more object) *leakStage {
	return l.step(id, with(object{"run": object{"entrypoint": []string{shell, "-c"}, "commands": []string{text}}}, more))
}

func (l *leakStage) request() object {
	init := with(object{"secrets": []string{
		l.values["PREFIX"], l.values["LONGER"], l.values["WORD"], l.values["PLUGIN"], l.values["REGISTRY"][:0],
	}}, l.init)
	return object{"id": l.id, "selectors": []string{"v1"}, "init": init, "steps": l.steps}
}

// giving returns the members of a step that runs give.sh.
func giving(values map[string]string) object {
	return with(halves(values), object{
		"output_vars": []string{"VAR", "S_ODD"},
		"outputs":     []object{{"key": "DECLARED", "value": "S_PLAIN", "type": "SECRET"}, {"key": "SHOWN", "value": "S_PREFIX"}},
		"test_report": object{"kind": "JUnit", "junit": object{"paths": []string{"own/*.xml", "own/none-" + values["WORD"] + ".xml"}}},
	})
}

const (
	later   = `printf '%s %s%s\n' "$EXPORTED" "$HALF" "$OTHER_HALF"; unset HALF OTHER_HALF; env`
	unready = `printf '%4080s%s' "" "$S_PLAIN"; exit 1`
	serves  = `while :; do printf 'serving with %s\n' "$S_ODD"; : > own/up; sleep 0.2; done`
	hangs   = `printf '%s and no newline' "$S_PLAIN"; sleep 60`
)

// onTheHost returns a stage whose steps run on the host.
func onTheHost(t *testing.T, values map[string]string, vars object, plugins string) object {
	l := &leakStage{t: t, id: "host", values: values, vars: vars}
	say, give := leakScript(t, "say.sh"), leakScript(t, "give.sh")
	l.script("bash", "bash", say, saying(values, printedSecrets...)).script("dash", "dash", say, saying(values, printedSecrets...))
	l.script("give", "bash", give, giving(values))
	l.script("later", "bash", later, halves(values))
	l.script("nowhere", "sh", "true", object{"working_dir": "/none/" + values["PREFIX"]})
	l.script("noprogram", "/none/"+values["LONGER"], "true", nil)
	l.script("fails", "sh", `echo "cannot log in with $S_PLAIN" >&2; exit 3`, nil)
	l.script("hangs", "sh", hangs, object{"timeout": 1})
	l.script("unready", "sh", "sleep 60", object{"detach": true, "ready": object{"command": []string{"sh", "-c", unready}, "timeout": 1}})
	l.script("serves", "sh", "mkdir -p own; "+serves, object{"detach": true, "ready": object{"command": []string{"test", "-e", "own/up"}, "timeout": 20}})
	l.script("unresolved", "sh", "true", object{"environment": object{"X": "${{secrets.file://values.json#PLAIN}}${{secrets.file://values.json#NONE}}"}})
	program := "#!/bin/sh\nenv\necho \"$PLUGIN_PASSWORD\" >&2\nexit 4\n"
	sum := sha256.Sum256([]byte(program))
	for id, path := range map[string]string{"plugin": "/plugin", "noplugin": "/none/" + values["PLUGIN"]} {
		l.step(id, object{"plugin": object{
			"settings": object{"password": "${{secrets.file://values.json#PLAIN}}", "user": values["PREFIX"]},
			"executables": []object{{
				"os": runtime.GOOS, "arch": runtime.GOARCH, "sha256": hex.EncodeToString(sum[:]),
				"url": strings.Replace(plugins, "http://", "http://user:"+values["PLUGIN"]+"@", 1) + path + "?token=" + values["PLUGIN"],
			}},
		}})
	}
	return l.request()
}

// newPluginServer serves the program of onTheHost's plugin.
func newPluginServer(t *testing.T) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/plugin" {
			http.Error(w, "there is no "+r.URL.Path, http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte("#!/bin/sh\nenv\necho \"$PLUGIN_PASSWORD\" >&2\nexit 4\n"))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// inContainers returns a stage whose steps run in containers.
func inContainers(t *testing.T, values map[string]string, vars object, open, talks *testbed.Registry) object {
	l := &leakStage{t: t, id: "containers", values: values, vars: vars}
	image := object{"image": testbed.Image, "pull": "Never"}
	l.script("say", "sh", leakScript(t, "say.sh"), with(image, saying(values, printedSecrets...)))
	l.script("give", "sh", leakScript(t, "give.sh"), with(image, giving(values)))
	l.script("later", "sh", later, with(image, halves(values)))
	l.script("fails", "sh", `echo "cannot log in with $S_PLAIN" >&2; exit 3`, image)
	l.script("noprogram", "/none", "true", image)
	l.script("hangs", "sh", hangs, with(image, object{"timeout": 1}))
	l.script("unready", "sh", "sleep 60", with(image, object{"detach": true, "ready": object{"command": []string{"sh", "-c", unready}, "timeout": 1}}))
	l.script("serves", "sh", serves, with(image, object{"detach": true, "ready": object{"command": []string{"test", "-e", "own/up"}, "timeout": 20}}))
	pulled := func(r *testbed.Registry, password string) object {
		return object{"image": r.Image, "pull": "Always", "auth": object{"address": r.Host, "username": "team", "password": password}}
	}
	l.script("talking", "sh", "true", pulled(talks, values["REGISTRY"]))
	l.script("refused", "sh", "true", pulled(open, values["WRONGREGISTRY"]))
	l.script("pulled", "sh", "echo \"$S_PLAIN\"", pulled(open, values["REGISTRY"]))
	return l.request()
}

// clones returns stages that clone a repository, with and without success.
func clones(t *testing.T, values map[string]string, vars object, f *forge) (list []object) {
	host := strings.TrimPrefix(f.URL, "http://")
	for id, c := range map[string]object{
		"clone-auth":      {"url": f.URL + "/project.git", "auth": object{"username": "ci", "password": values["GIT"]}},
		"clone-url":       {"url": "http://ci:" + values["GIT"] + "@" + host + "/project.git"},
		"clone-auth-fail": {"url": f.URL + "/project.git", "auth": object{"username": "ci", "password": values["WRONGGIT"]}},
		"clone-url-fail":  {"url": "http://ci:" + values["WRONGGIT"] + "@" + host + "/project.git"},
		"clone-none":      {"url": "http://ci:" + values["GIT"] + "@" + host + "/none.git"},
	} {
		c["branch"] = "next"
		c["submodules"] = true
		l := &leakStage{t: t, id: id, values: values, vars: vars, init: object{"clone": c}}
		l.script("look", "sh", `cat .git/config; git remote -v; cat part/.git; env; mkdir own; : > own/wait-$HUNT; until [ -e own/go-$HUNT ]; do sleep 0.05; done`, nil)
		list = append(list, l.request())
	}
	return list
}

// brokenInit returns a stage whose init fails with a secret in the reason.
func brokenInit(t *testing.T, values map[string]string, vars object) object {
	l := &leakStage{t: t, id: "no-init", values: values, vars: vars, init: object{
		"files": []object{{"path": "/none/" + values["PREFIX"], "data": values["LONGER"]}},
	}}
	return l.script("never", "sh", "true", nil).request()
}

// labelled returns a stage whose network would have a label with a secret.
func labelled(t *testing.T, values map[string]string, vars object) object {
	l := &leakStage{t: t, id: "labelled", values: values, vars: vars, init: object{"network": object{"labels": object{"team": values["PREFIX"]}}}}
	return l.script("never", "sh", "true", object{"image": testbed.Image, "pull": "Never"}).request()
}

// aborted returns a stage that is aborted while it prints a secret.
func aborted(t *testing.T, values map[string]string, vars object) object {
	l := &leakStage{t: t, id: "aborted", values: values, vars: vars}
	return l.script("hangs", "sh", `printf '%s' "$S_PLAIN"; mkdir own; : > own/wait-$HUNT; sleep 60`, nil).request()
}

// checkSaid checks that a stage has printed the secrets, so that there was something to find.
func checkSaid(t *testing.T, s *site, st api.Stage, ends map[string]string) {
	t.Helper()
	statuses := map[string]string{}
	for _, step := range st.Steps {
		statuses[step.ID] = string(step.Status)
		if ends[step.ID] == "SUCCESS" && (step.ID == "bash" || step.ID == "dash" || step.ID == "say") {
			log := s.log(t, step.LogKey)
			assert.Contains(t, log, "said it all", "%s/%s", st.ID, step.ID)
			assert.Greater(t, strings.Count(log, "******"), 200, "%s/%s", st.ID, step.ID)
		}
	}
	errs, _ := json.Marshal(st.Steps)
	assert.Equal(t, ends, statuses, "%s: %s %s", st.ID, st.Error, errs[:min(len(errs), 4000)])
	assert.Equal(t, api.Success, st.Cleanup.Status)
}
