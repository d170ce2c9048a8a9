// Command repostatus is a standalone task that reports the state of a git repository: whether
// it exists, its default branch and the commit of a ref.
//
// It is a CGI program, run by package driver/cgi. The task's data, and the answer:
//
//	{"url": "https://git.example/team/app.git", "ref": "main", "username": "ci", "password": "${{secrets.git}}"}
//	{"exists": true, "empty": false, "default_branch": "main", "ref": "refs/heads/main", "commit": "...", "branches": 3, "tags": 1}
//
// For a missing repository the answer is {"exists": false, "reason": "..."}. Without
// RUN_AS_CGI the program reads the data from standard input and prints the answer.
package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/delegate-io/dlite/examples/tasks/internal/gitrefs"
	"github.com/delegate-io/dlite/examples/tasks/internal/standalone"
)

type input struct {
	URL      string `json:"url"`
	Ref      string `json:"ref"`
	Username string `json:"username"`
	Password string `json:"password"`
}

type output struct {
	Exists        bool   `json:"exists"`
	Reason        string `json:"reason,omitempty"`
	Empty         bool   `json:"empty"`
	DefaultBranch string `json:"default_branch,omitempty"`
	Ref           string `json:"ref,omitempty"`
	Commit        string `json:"commit,omitempty"`
	Branches      int    `json:"branches"`
	Tags          int    `json:"tags"`
}

func main() { os.Exit(standalone.Main(repositoryStatus)) }

func repositoryStatus(c *standalone.Call, in input) (output, error) {
	c.Say("Looking at %s", standalone.WithoutCredentials(in.URL))
	refs, err := gitrefs.List(c.Context, c.Client, in.URL, in.Username, in.Password)
	var status *gitrefs.StatusError
	switch {
	case errors.As(err, &status) && status.Status < http.StatusInternalServerError:
		return output{Reason: status.Error()}, nil
	case err != nil:
		return output{}, err
	}
	out := output{Exists: true, Empty: len(refs.Commits) == 0, DefaultBranch: strings.TrimPrefix(refs.Head, "refs/heads/")}
	for ref := range refs.Commits {
		switch {
		case strings.HasPrefix(ref, "refs/heads/"):
			out.Branches++
		case strings.HasPrefix(ref, "refs/tags/") && !strings.HasSuffix(ref, "^{}"):
			out.Tags++
		}
	}
	var ok bool
	if out.Ref, out.Commit, ok = refs.Find(in.Ref); !ok && !out.Empty {
		out.Reason = fmt.Sprintf("it has no %q", in.Ref)
	}
	return out, nil
}
