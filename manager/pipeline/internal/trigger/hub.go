package trigger

import "strings"

// hub reads the payloads of GitHub, and those of Gitea, which have the same members.
func hub(kind string, o object) []Event {
	e := Event{
		Action: o.text("action"), Repository: o.text("repository", "clone_url"),
		User: first(o.text("sender", "login"), o.text("pusher", "name")), UserID: o.text("sender", "id"),
		Email: first(o.text("pusher", "email"), o.text("sender", "email")), Avatar: o.text("sender", "avatar_url"),
	}
	switch kind {
	case "push":
		e.Action = ""
		e.Commit, e.Base = o.text("after"), o.text("before")
		e.Message = o.text("head_commit", "message")
		if id := o.text("head_commit", "id"); id != "" && strings.HasPrefix(o.text("ref"), "refs/tags/") {
			e.Commit = id // after is the object of an annotated tag
		}
		if !e.setRef(o.text("ref")) || o.flag("deleted") || strings.Trim(o.text("after"), "0") == "" {
			return nil
		}
	case "pull_request":
		e.Type = PullRequest
		hubPull(&e, o.at("pull_request"))
		switch {
		case strings.HasPrefix(e.Action, "synchronize"):
			e.Action = "updated"
		case e.Action == "closed" && o.flag("pull_request", "merged"):
			e.Action = "merged"
		}
	case "release":
		e.Type, e.Tag = Release, o.text("release", "tag_name")
		if e.Action == "edited" {
			e.Action = "updated"
		}
	case "issue_comment", "pull_request_comment", "pull_request_review_comment":
		hubComment(&e, o)
	default:
		return nil
	}
	return []Event{e}
}

func hubPull(e *Event, pr object) {
	e.Number, e.Title, e.Body = pr.text("number"), pr.text("title"), pr.text("body")
	e.Link, e.State, e.Merge = pr.text("html_url"), pr.text("state"), pr.text("merge_commit_sha")
	e.SourceBranch, e.TargetBranch = pr.text("head", "ref"), pr.text("base", "ref")
	e.Branch, e.Commit, e.Base = e.TargetBranch, pr.text("head", "sha"), pr.text("base", "sha")
	e.Ref, e.Labels = "refs/pull/"+e.Number+"/head", pr.joined("labels", "name")
	from, to := pr.text("head", "repo", "full_name"), pr.text("base", "repo", "full_name")
	e.Foreign = from == "" || from != to
}

// hubComment reads a comment. The payload about a comment on an issue does not say from where a pull request comes.
func hubComment(e *Event, o object) {
	e.Type = Comment
	issue := o.at("issue")
	switch {
	case len(o.at("pull_request")) > 0:
		hubPull(e, o.at("pull_request"))
	case len(issue.at("pull_request")) > 0 || o.flag("is_pull"):
		e.Number, e.Title, e.Body = issue.text("number"), issue.text("title"), issue.text("body")
		e.Link, e.State, e.Foreign = issue.text("pull_request", "html_url"), issue.text("state"), true
	}
}
