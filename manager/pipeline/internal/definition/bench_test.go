package definition

import (
	"fmt"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// large returns a pipeline of 3 MB with 10,000 steps.
func large() Source {
	var b strings.Builder
	b.WriteString("pipeline:\n  identifier: large\n  name: large\n  stages:\n")
	for stage := range 100 {
		fmt.Fprintf(&b, "    - stage:\n        identifier: stage_%d\n        name: stage\n        type: CI\n        spec:\n          execution:\n            steps:\n", stage)
		for step := range 100 {
			fmt.Fprintf(&b, "              - step:\n                  identifier: step_%d\n                  name: step\n                  type: Run\n"+
				"                  timeout: 10m\n                  spec:\n                    shell: Bash\n                    image: alpine\n"+
				"                    command: |\n                      echo <+stage.name>\n", step)
		}
	}
	return Source{Name: "large.yaml", Text: []byte(b.String())}
}

func BenchmarkReadTenThousandSteps(b *testing.B) {
	s := large()
	b.SetBytes(int64(len(s.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if p, problems := Read(s, Options{}); p == nil {
			b.Fatal(problems)
		}
	}
}

// BenchmarkYAMLAlone is the part of the YAML library in the time of
// BenchmarkReadTenThousandSteps.
func BenchmarkYAMLAlone(b *testing.B) {
	s := large()
	b.SetBytes(int64(len(s.Text)))
	for b.Loop() {
		var n yaml.Node
		if err := yaml.Unmarshal(s.Text, &n); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLintTenThousandSteps(b *testing.B) {
	s := large()
	p, problems := Read(s, Options{})
	if p == nil {
		b.Fatal(problems)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = Lint(p, s)
	}
}
