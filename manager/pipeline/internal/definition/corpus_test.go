package definition

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// corpusOptions are the options with which every pipeline of testdata/pipelines reads.
func corpusOptions(t testing.TB, name string) Options {
	find, err := Folder(os.DirFS("testdata/templates"))
	require.NoError(t, err)
	opts := Options{Templates: find}
	if name == "inputs.yaml" {
		opts.InputSets = []Source{file(t, "inputset.yaml")}
	}
	return opts
}

func files(t testing.TB, folder string) []string {
	names, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	return names
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestEveryPipelineReadsToItsOutline(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, name := range files(t, "pipelines") {
		name = filepath.Base(name)
		s := file(t, "pipelines/"+name)
		p, problems := Read(s, corpusOptions(t, name))
		require.False(t, problems.Errors(), problems)
		problems = append(problems, Lint(p, s)...)
		fmt.Fprintf(&all, "== %s\n", name)
		for _, problem := range problems {
			fmt.Fprintln(&all, problem)
		}
		outline(&all, p)
	}
	golden(t, "testdata/outlines.txt", all.String())
}

func TestEveryPipelineIsWrittenAndReadAgainWithoutAChange(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, "pipelines") {
		name = filepath.Base(name)
		first, _ := Read(file(t, "pipelines/"+name), corpusOptions(t, name))
		text, err := first.YAML()
		require.NoError(t, err)
		second, problems := Read(Source{Text: text}, Options{})
		require.False(t, problems.Errors(), "%s: %s", name, problems)
		require.Equal(t, first.Document.Plain(), second.Document.Plain(), name)
		var one, two strings.Builder
		outline(&one, first)
		outline(&two, second)
		require.Equal(t, one.String(), two.String(), name)
	}
}

func TestTheProblemsOfWrongPipelinesAreThoseOfTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, name := range files(t, "problems") {
		s := file(t, "problems/"+filepath.Base(name))
		p, problems := Read(s, Options{})
		require.Nil(t, p, name)
		require.True(t, problems.Errors(), name)
		golden(t, strings.TrimSuffix(name, ".yaml")+".txt", problems.Render(s))
	}
}

func TestEveryPipelineMatchesTheSchemaAndWrongOnesDoNot(t *testing.T) {
	t.Parallel()
	text, err := JSONSchema()
	require.NoError(t, err)
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("pipeline.json", document))
	compiled, err := compiler.Compile("pipeline.json")
	require.NoError(t, err)
	validate := func(name string) error {
		root, problem := parse(file(t, name))
		require.Nil(t, problem)
		value, err := json.Marshal(root.Plain())
		require.NoError(t, err)
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		require.NoError(t, err)
		return compiled.Validate(instance)
	}
	for _, name := range files(t, "pipelines") {
		if base := filepath.Base(name); base != "shells.yaml" && base != "linear.yaml" { // the schema offers words in one spelling
			require.NoError(t, validate("pipelines/"+base), base)
		}
	}
	for _, name := range []string{"keys", "decisions", "form_unknown"} {
		require.Error(t, validate("problems/"+name+".yaml"), name)
	}
}

// outline writes the structure of a pipeline.
func outline(b *strings.Builder, p *Pipeline) {
	for _, item := range p.Stages {
		if item.Stage != nil {
			outlineStage(b, item.Stage, "")
		}
		for _, s := range item.Parallel {
			outlineStage(b, s, "| ")
		}
	}
}

func outlineStage(b *strings.Builder, s *Stage, mark string) {
	fmt.Fprintf(b, "%sstage %s%s%s", mark, s.Identifier, outlineWhen(s.When), outlineStrategy(s.Strategy))
	if s.DependsOn != nil {
		fmt.Fprintf(b, " after %v", s.DependsOn)
	}
	if s.Infrastructure != nil {
		fmt.Fprintf(b, " on %s", s.Infrastructure.Type)
	}
	outlineFailures(b, s.FailureStrategies)
	b.WriteString("\n")
	outlineSteps(b, s.Steps, "  ", "")
}

func outlineSteps(b *strings.Builder, items []StepItem, indent, mark string) {
	for _, item := range items {
		switch {
		case item.Step != nil:
			s := item.Step
			fmt.Fprintf(b, "%s%s%s %s%s%s", indent, mark, s.Type, s.Identifier, outlineWhen(s.When), outlineStrategy(s.Strategy))
			if s.Timeout != nil {
				fmt.Fprintf(b, " within %s", s.Timeout.Text())
			}
			outlineFailures(b, s.FailureStrategies)
			b.WriteString("\n")
		case item.Group != nil:
			g := item.Group
			fmt.Fprintf(b, "%s%sgroup %s%s%s", indent, mark, g.Identifier, outlineWhen(g.When), outlineStrategy(g.Strategy))
			outlineFailures(b, g.FailureStrategies)
			b.WriteString("\n")
			outlineSteps(b, g.Steps, indent+"  ", "")
		default:
			outlineSteps(b, item.Parallel, indent, "| ")
		}
	}
}

func outlineWhen(w *When) string {
	if w == nil {
		return ""
	}
	return fmt.Sprintf(" when %s %q", w.Status, w.Condition.Text())
}

func outlineStrategy(s *Strategy) string {
	if s == nil {
		return ""
	}
	text := " strategy"
	if s.Matrix != nil {
		for _, axis := range s.Matrix.Axes {
			text += fmt.Sprintf(" %s=%v", axis.Key, axis.Value.Plain())
		}
		text += fmt.Sprintf(" without %d", len(s.Matrix.Exclude))
	}
	if s.Repeat != nil {
		text += fmt.Sprintf(" times %s items %v", s.Repeat.Times.Text(), s.Repeat.Items.Plain())
	}
	return text + fmt.Sprintf(" parallelism %q at most %q", s.Parallelism.Text(), s.MaxConcurrency.Text())
}

func outlineFailures(b *strings.Builder, strategies []*FailureStrategy) {
	for _, f := range strategies {
		fmt.Fprintf(b, " on %v", f.Errors)
		for a := f.Action; a != nil; a = a.OnRetryFailure {
			fmt.Fprintf(b, " %s %s", a.Type, a.RetryCount.Text())
			if a.OnTimeout != nil {
				fmt.Fprintf(b, "or %s", a.OnTimeout.Type)
			}
		}
	}
}
