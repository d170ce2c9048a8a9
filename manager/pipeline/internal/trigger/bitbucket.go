package trigger

import "strings"

// bitbucket reads the payloads of Bitbucket Cloud. One push may change several branches and tags.
func bitbucket(kind string, o object) []Event {
	base := Event{
		Repository: o.text("repository", "links", "html", "href"),
		User:       first(o.text("actor", "nickname"), o.text("actor", "display_name")), UserID: o.text("actor", "account_id"),
		Avatar: o.text("actor", "links", "avatar", "href"),
	}
	action, pull := strings.CutPrefix(kind, "pullrequest:")
	switch {
	case kind == "repo:push":
		return bitbucketPush(base, o)
	case !pull:
		return nil
	}
	e := base
	bitbucketPull(&e, o.at("pullrequest"))
	e.Type, e.Action = PullRequest, word(action, map[string]string{
		"created": "opened", "fulfilled": "merged", "rejected": "closed",
	})
	if comment, ok := strings.CutPrefix(action, "comment_"); ok {
		e.Type, e.Action = Comment, word(comment, map[string]string{"updated": "edited"})
	}
	return []Event{e}
}

func bitbucketPush(base Event, o object) []Event {
	var events []Event
	for _, c := range o.at("push").list("changes") {
		e, now := base, c.at("new")
		prefix := map[string]string{"branch": "refs/heads/", "tag": "refs/tags/"}[now.text("type")]
		if prefix == "" || !e.setRef(prefix+now.text("name")) { // the change removes a branch
			continue
		}
		e.Commit, e.Message = now.text("target", "hash"), now.text("target", "message")
		e.Base = c.text("old", "target", "hash")
		events = append(events, e)
	}
	return events
}

func bitbucketPull(e *Event, pr object) {
	e.Number, e.Title, e.Body = pr.text("id"), pr.text("title"), pr.text("description")
	e.Link, e.State, e.Merge = pr.text("links", "html", "href"), pr.text("state"), pr.text("merge_commit", "hash")
	e.SourceBranch, e.TargetBranch = pr.text("source", "branch", "name"), pr.text("destination", "branch", "name")
	e.Branch, e.Commit, e.Base = e.TargetBranch, pr.text("source", "commit", "hash"), pr.text("destination", "commit", "hash")
	from, to := pr.text("source", "repository", "full_name"), pr.text("destination", "repository", "full_name")
	e.Foreign = from == "" || from != to
}
