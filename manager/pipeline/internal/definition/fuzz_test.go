package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func seeds(f *testing.F, add func(text string)) {
	for _, pattern := range []string{"pipelines", "problems"} {
		for _, name := range files(f, pattern) {
			text, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			add(string(text))
		}
	}
}

// FuzzRead checks that every pipeline that Read accepts is written and read to the same
// document, and that positions lie within the file.
func FuzzRead(f *testing.F) {
	seeds(f, func(text string) { f.Add(text) })
	f.Fuzz(func(t *testing.T, text string) {
		s := Source{Name: "p.yaml", Text: []byte(text)}
		lines := strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u2028") + strings.Count(text, "\u2029") + strings.Count(text, "\u0085") + 2
		p, problems := Read(s, Options{Partial: true, SkipOtherStages: true})
		if (p == nil) != problems.Errors() {
			t.Fatalf("pipeline %v with problems %v", p, problems)
		}
		problems.Render(s)
		if p != nil {
			problems = append(problems, Lint(p, s)...)
			same(t, p)
		}
		for _, problem := range problems {
			if problem.Line < 0 || problem.Line > lines || problem.Column < 0 {
				t.Fatalf("%v lies outside of %d lines", problem, lines)
			}
			if strings.ContainsRune(problem.Error(), 0x1b) {
				t.Fatalf("the problem %q holds an escape character", problem.Error())
			}
		}
	})
}

func same(t *testing.T, p *Pipeline) {
	t.Helper()
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, problem := parse(Source{Text: text})
	if problem != nil {
		if problem.Code == "too-large" {
			return
		}
		t.Fatalf("the written pipeline does not read: %v\n%s", problem, text)
	}
	if !equalNodes(p.Document, again) {
		t.Fatalf("the written pipeline reads differently:\n%s", text)
	}
}

func equalNodes(a, b *Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || len(a.Items) != len(b.Items) || len(a.Fields) != len(b.Fields) {
		return false
	}
	for i := range a.Items {
		if !equalNodes(a.Items[i], b.Items[i]) {
			return false
		}
	}
	for i := range a.Fields {
		if a.Fields[i].Key != b.Fields[i].Key || !equalNodes(a.Fields[i].Value, b.Fields[i].Value) {
			return false
		}
	}
	return true
}

// FuzzInputSet checks that no input set or value makes Read fail or changes a fixed value.
func FuzzInputSet(f *testing.F) {
	pipeline, err := os.ReadFile(filepath.Join("testdata", "pipelines", "inputs.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	set, err := os.ReadFile(filepath.Join("testdata", "inputset.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(set), "v7")
	f.Add(strings.ReplaceAll(string(set), "v7", "<+input>"), "{type: tag}")
	f.Add("inputSet: {pipeline: {stages: [{stage: {identifier: s, spec: {execution: {steps: [{step: {identifier: a, timeout: 20s}}]}}}}]}}", "[a, {b: c}]")
	f.Fuzz(func(t *testing.T, set, value string) {
		p, _ := Read(Source{Name: "p.yaml", Text: pipeline}, Options{
			InputSets: []Source{{"set.yaml", []byte(set)}}, Inputs: map[string]string{"codebase.build": value}, Partial: true})
		if p == nil {
			return
		}
		if p.Identifier != "inputs" || len(p.Stages) != 1 || p.Stages[0].Stage.Steps[0].Step.Type != "Run" {
			t.Fatal("the input set changed a value that is no input")
		}
		same(t, p)
	})
}

// FuzzTemplate checks that no template makes Read fail.
func FuzzTemplate(f *testing.F) {
	for _, name := range []string{"step", "group", "stage"} {
		text, err := os.ReadFile(filepath.Join("testdata", "templates", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("template: {type: Stage, spec: {template: {templateRef: x}}}")
	pipeline := []byte("pipeline: {identifier: p, name: p, stages: [{stage: {identifier: s, name: s, template: {templateRef: x, templateInputs: {spec: {a: 1}}}}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		find := func(string, string) (Source, bool) { return Source{Name: "t.yaml", Text: []byte(text)}, true }
		if p, _ := Read(Source{Name: "p.yaml", Text: pipeline}, Options{Templates: find, Partial: true}); p != nil {
			same(t, p)
			_ = Lint(p)
		}
	})
}
