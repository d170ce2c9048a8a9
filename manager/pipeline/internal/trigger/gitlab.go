package trigger

import "strings"

// gitLab reads the payloads of GitLab.
func gitLab(o object) []Event {
	e := Event{
		Repository: o.text("project", "git_http_url"),
		User:       first(o.text("user_username"), o.text("user", "username")), UserID: first(o.text("user_id"), o.text("user", "id")),
		Email: first(o.text("user_email"), o.text("user", "email")), Avatar: first(o.text("user_avatar"), o.text("user", "avatar_url")),
	}
	switch o.text("object_kind") {
	case "push", "tag_push":
		e.Commit, e.Base = first(o.text("checkout_sha"), o.text("after")), o.text("before")
		if !e.setRef(o.text("ref")) || strings.Trim(o.text("after"), "0") == "" {
			return nil
		}
		for _, c := range o.list("commits") {
			if c.text("id") == e.Commit {
				e.Message = c.text("message")
			}
		}
	case "merge_request":
		e.Type = PullRequest
		mr := o.at("object_attributes")
		gitLabRequest(&e, mr)
		e.Base, e.Labels = mr.text("oldrev"), o.joined("labels", "title")
		e.Action = word(mr.text("action"), map[string]string{
			"open": "opened", "reopen": "reopened", "update": "edited", "close": "closed", "merge": "merged",
		})
		if e.Action == "edited" && mr.text("oldrev") != "" { // a push
			e.Action = "updated"
		}
	case "release":
		e.Type, e.Tag = Release, o.text("tag")
		e.Commit, e.Message = o.text("commit", "id"), o.text("commit", "message")
		e.Action = word(o.text("action"), map[string]string{"create": "published", "update": "updated", "delete": "deleted"})
	case "note":
		e.Type = Comment
		e.Action = word(first(o.text("object_attributes", "action"), "create"), map[string]string{"create": "created", "update": "edited"})
		if mr := o.at("merge_request"); len(mr) > 0 {
			gitLabRequest(&e, mr)
		}
	default:
		return nil
	}
	return []Event{e}
}

func gitLabRequest(e *Event, mr object) {
	e.Number, e.Title, e.Body = mr.text("iid"), mr.text("title"), mr.text("description")
	e.Link, e.State, e.Merge = mr.text("url"), mr.text("state"), mr.text("merge_commit_sha")
	e.SourceBranch, e.TargetBranch = mr.text("source_branch"), mr.text("target_branch")
	e.Branch, e.Commit, e.Message = e.TargetBranch, mr.text("last_commit", "id"), mr.text("last_commit", "message")
	e.Ref = "refs/merge-requests/" + e.Number + "/head"
	from, to := mr.text("source_project_id"), mr.text("target_project_id")
	e.Foreign = from == "" || from != to
}

// word translates a word of a provider.
func word(text string, words map[string]string) string {
	if w, ok := words[text]; ok {
		return w
	}
	return text
}
