package yaml

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/delegate-io/dlite/task/stage"
)

func addFiles(f *testing.F) {
	for _, name := range []string{"graph", "exec", "windows"} {
		b, err := os.ReadFile("testdata/" + name + ".yml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, text := range []string{
		"kind: pipeline\nsteps: [{name: a, image: b, settings: {x: 0x1f, y: [1, {a: b}]}}]", "kind: secret\nname: a\ndata: b\n---\n...\n---\n",
		"a: &a [x]\nkind: pipeline\nsteps: [*a, <<: *a]", "kind: pipeline\nsteps: [{name: a, image: b, depends_on: [a, b]}, {name: b, image: c}]",
		"kind: pipeline\nclone: {disable: yes}\nsteps: [{name: a, image: plugins/docker, when: {branch: '{a,[b]}'}, mem_limit: 1.5g}]",
	} {
		f.Add([]byte(text))
	}
}

func FuzzParse(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		c, err := parse(data)
		if err != nil {
			return
		}
		for _, p := range c.pipelines {
			if found, _ := c.find(p.Name); found != p {
				t.Fatalf("pipeline %q is not found", p.Name)
			}
		}
	})
}

// FuzzCompile checks the rules of each plan: its graph is complete and has no cycle, its payloads
// are JSON, and an untrusted repository does not get out of its containers.
func FuzzCompile(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		c, err := parse(data)
		if err != nil {
			return
		}
		for _, p := range c.pipelines {
			plan, err := p.compile(Input{Variables: push(), Secrets: map[string]string{"token": "not-a-real-token"}, Options: Options{Privileged: []string{}}})
			if err == nil {
				checkPlan(t, plan)
			}
		}
	})
}

func checkPlan(t *testing.T, plan *Plan) {
	ended := map[string]bool{}
	for range plan.Steps {
		for _, s := range plan.Steps {
			if !slices.ContainsFunc(s.DependsOn, func(name string) bool { return !ended[name] }) {
				ended[s.Name] = true
			}
		}
	}
	numbers := 0
	for _, s := range plan.Steps {
		if !ended[s.Name] {
			t.Fatalf("step %q never starts", s.Name)
		}
		if !s.Skipped {
			if numbers++; s.Number != numbers {
				t.Fatalf("step %q has the number %d", s.Name, s.Number)
			}
		}
		checkUntrusted(t, &s.Execute.Step)
		for _, name := range s.DependsOn {
			if plan.step(name).Skipped {
				t.Fatalf("step %q depends on the skipped step %q", s.Name, name)
			}
		}
	}
	for _, v := range plan.Init.Volumes {
		if v.Host != nil || v.Temp.Medium != "" {
			t.Fatalf("volume %+v", v)
		}
	}
	init, err := json.Marshal(plan.Init)
	if err != nil {
		t.Fatal(err)
	}
	var again stage.InitRequest
	if err := json.Unmarshal(init, &again); err != nil {
		t.Fatal(err)
	}
}

func checkUntrusted(t *testing.T, s *stage.Step) {
	if s.Privileged || s.Network != "" || s.MountDockerSocket || len(s.Devices)+len(s.DNS)+len(s.DNSSearch)+len(s.ExtraHosts)+len(s.PortBindings) > 0 {
		t.Fatalf("step %+v", s)
	}
	for name := range s.Environment {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			t.Fatalf("variable %q", name)
		}
	}
}
