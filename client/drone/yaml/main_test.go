package yaml

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/local/host"
)

func TestMain(m *testing.M) {
	host.Supervise()
	goleak.VerifyTestMain(m)
}

// fakeCommit is the object name of no commit.
var fakeCommit = strings.Repeat("ab", 20)

// push are the variables of a push.
func push() map[string]string {
	return map[string]string{
		"DRONE_BRANCH": "main", "DRONE_BUILD_EVENT": "push", "DRONE_COMMIT_REF": "refs/heads/main", "DRONE_COMMIT_SHA": fakeCommit,
		"DRONE_REPO": "team/project", "DRONE_GIT_HTTP_URL": "https://git.example/team/project.git", "DRONE_SYSTEM_HOST": "drone.example",
	}
}

// compile compiles the pipeline "default" of a file.
func compile(t testing.TB, text string, in Input) (*Plan, error) {
	t.Helper()
	c, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	p, err := c.find("")
	if err != nil {
		return nil, err
	}
	return p.compile(in)
}

func compiled(t testing.TB, text string, in Input) *Plan {
	t.Helper()
	if in.Variables == nil {
		in.Variables = push()
	}
	plan, err := compile(t, text, in)
	require.NoError(t, err)
	return plan
}

func (p *Plan) step(name string) *Step {
	for i := range p.Steps {
		if p.Steps[i].Name == name {
			return &p.Steps[i]
		}
	}
	return nil
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	return b
}
