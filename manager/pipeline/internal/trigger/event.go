package trigger

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// The types of events.
const (
	Push        = "push"
	Tag         = "tag"
	PullRequest = "pull_request"
	Release     = "release"
	Comment     = "comment"
	Call        = "call" // of a custom webhook
)

// Actions returns the actions of a type of event, and those that start a run if a trigger names none.
func Actions(kind string) (known, usual []string) {
	switch kind {
	case PullRequest:
		return []string{"opened", "reopened", "updated", "edited", "closed", "merged"}, []string{"opened", "reopened", "updated"}
	case Release:
		return []string{"published", "updated", "deleted"}, []string{"published"}
	case Comment:
		return []string{"created", "edited", "deleted"}, []string{"created"}
	}
	return nil, nil
}

// Event is an event of a repository. Every field comes from outside. Unknown fields are empty.
type Event struct {
	Type   string
	Action string // see Actions; other actions have the word of the provider

	// Branch is the branch of a push, and the target of a pull request.
	Branch, Tag                string
	SourceBranch, TargetBranch string

	Number, Title, Link, Body, State string // of a pull request
	Labels                           string // of a pull request, separated by commas

	Commit, Base, Merge string // commits, in hexadecimal form
	Message, Ref        string

	User, UserID, Email, Avatar string
	Repository                  string // its URL

	// Foreign reports that the change is or may be in another repository, for example a fork.
	Foreign bool
}

// maxEvents bounds the events of one delivery.
const maxEvents = 20

// Read returns the events of a verified delivery. A delivery that starts nothing, for example a test or the removal of
// a branch, has none.
func Read(p Provider, header http.Header, payload map[string]any) ([]Event, error) {
	o := object(payload)
	var events []Event
	switch p {
	case GitHub:
		events = hub(header.Get("X-GitHub-Event"), o)
	case Gitea:
		events = hub(strings.TrimSuffix(header.Get("X-Gitea-Event"), "_sync"), o)
	case GitLab:
		events = gitLab(o)
	case Bitbucket:
		events = bitbucket(header.Get("X-Event-Key"), o)
	case Custom:
		return []Event{{Type: Call}}, nil
	}
	if len(events) > maxEvents {
		return nil, fmt.Errorf("the delivery has %d changes: at most %d are taken", len(events), maxEvents)
	}
	for i := range events {
		events[i].clean()
	}
	return events, nil
}

var commitID = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// clean removes texts that are not ids of commits, because a clone uses them.
func (e *Event) clean() {
	for _, c := range []*string{&e.Commit, &e.Base, &e.Merge} {
		if !commitID.MatchString(*c) || strings.Trim(*c, "0") == "" {
			*c = ""
		}
	}
}

// setRef sets the branch or the tag of a push.
func (e *Event) setRef(ref string) bool {
	e.Ref = ref
	if tag, ok := strings.CutPrefix(ref, "refs/tags/"); ok {
		e.Type, e.Tag = Tag, tag
		return tag != ""
	}
	branch, ok := strings.CutPrefix(ref, "refs/heads/")
	e.Type, e.Branch = Push, branch
	return ok && branch != ""
}

// Trigger returns the values of trigger.*, for the payload and the headers of the delivery.
func (e *Event) Trigger(p Provider, payload map[string]any, header http.Header) map[string]any {
	repo := map[Provider]string{GitHub: "Github", GitLab: "Gitlab", Gitea: "Gitea", Bitbucket: "Bitbucket", Custom: "Custom"}[p]
	values := map[string]any{"type": "Webhook", "payload": payload, "header": Headers(header), "sourceRepo": repo}
	if p == Custom {
		values["type"] = "Custom"
	}
	event := map[string]string{Push: "PUSH", Tag: "PUSH", PullRequest: "PR", Release: "RELEASE", Comment: "ISSUE_COMMENT"}[e.Type]
	set(values, map[string]string{
		"event": event, "action": e.Action, "branch": e.Branch, "tag": e.Tag, "sourceBranch": e.SourceBranch, "targetBranch": e.TargetBranch,
		"prNumber": e.Number, "prTitle": e.Title, "prLabels": e.Labels, "commitSha": e.Commit, "baseCommitSha": e.Base, "gitUser": e.User, "repoUrl": e.Repository,
	})
	return values
}

// Codebase returns the values of codebase.*, or nil if the event has no codebase.
func (e *Event) Codebase() map[string]any {
	if e.Type == Call {
		return nil
	}
	values := map[string]any{}
	set(values, map[string]string{
		"branch": e.Branch, "tag": e.Tag, "sourceBranch": e.SourceBranch, "targetBranch": e.TargetBranch,
		"prNumber": e.Number, "prTitle": e.Title, "pullRequestLink": e.Link, "pullRequestBody": e.Body, "state": e.State,
		"commitSha": e.Commit, "shortCommitSha": e.Commit[:min(7, len(e.Commit))], "baseCommitSha": e.Base, "mergeSha": e.Merge,
		"commitMessage": e.Message, "commitRef": e.Ref, "repoUrl": e.Repository,
		"gitUser": e.User, "gitUserId": e.UserID, "gitUserEmail": e.Email, "gitUserAvatar": e.Avatar,
	})
	build := map[string]any{}
	switch {
	case e.Number != "":
		build["type"], build["spec"] = "PR", map[string]any{"number": e.Number}
	case e.Tag != "":
		build["type"], build["spec"] = "tag", map[string]any{"tag": e.Tag}
	case e.Branch != "":
		build["type"], build["spec"] = "Push", map[string]any{"branch": e.Branch}
	default:
		return values
	}
	values["build"] = build
	return values
}

// set copies the values that are not empty. The others are null in expressions.
func set(values map[string]any, from map[string]string) {
	for name, value := range from {
		if value != "" {
			values[name] = value
		}
	}
}

// object is an object of a payload. Its methods accept each shape: a member that is missing or has another type is
// empty.
type object map[string]any

func (o object) at(path ...string) object {
	for _, name := range path {
		o, _ = o[name].(map[string]any)
	}
	return o
}

// text returns a text or a number.
func (o object) text(path ...string) string {
	last := len(path) - 1
	switch v := o.at(path[:last]...)[path[last]].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func (o object) flag(path ...string) bool {
	last := len(path) - 1
	v, _ := o.at(path[:last]...)[path[last]].(bool)
	return v
}

func (o object) list(name string) []object {
	all, _ := o[name].([]any)
	var out []object
	for _, item := range all {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// joined returns a member of the objects of a list, separated by commas.
func (o object) joined(list, member string) string {
	var texts []string
	for _, item := range o.list(list) {
		if text := item.text(member); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, ",")
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
