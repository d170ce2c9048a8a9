package status

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/delegate-io/dlite/internal/source"
)

var (
	commitForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

	githubStates = map[string]string{
		source.StatePending: "pending", source.StateRunning: "pending", source.StateSuccess: "success", source.StateFailure: "failure", source.StateAborted: "error",
	}
	gitlabStates = map[string]string{
		source.StatePending: "pending", source.StateRunning: "running", source.StateSuccess: "success", source.StateFailure: "failed", source.StateAborted: "canceled",
	}
	bitbucketStates = map[string]string{
		source.StatePending: "INPROGRESS", source.StateRunning: "INPROGRESS", source.StateSuccess: "SUCCESSFUL", source.StateFailure: "FAILED", source.StateAborted: "STOPPED",
	}
	azureStates = map[string]string{
		source.StatePending: "pending", source.StateRunning: "pending", source.StateSuccess: "succeeded", source.StateFailure: "failed", source.StateAborted: "error",
	}
)

// callOf returns the request for a status, in the documented API of its provider.
func callOf(r *source.StatusRequest) (*call, error) {
	u, err := url.Parse(r.Server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil:
		return nil, errors.New("server is not an address with https")
	case !commitForm.MatchString(r.Commit):
		return nil, errors.New("commit is not the whole id of a commit")
	case r.Repository == "" || r.Context == "" || githubStates[r.State] == "":
		return nil, errors.New("repository, context and a known state are required")
	case r.Auth == nil || r.Auth.Password == "":
		return nil, errors.New("the connector has no token and no password")
	}
	base := strings.TrimSuffix(r.Server, "/")
	c := &call{header: http.Header{}}
	switch r.Provider {
	case "github":
		if u.Host == "github.com" {
			base = "https://api.github.com"
		} else {
			base += "/api/v3"
		}
		c.header.Set("Authorization", "Bearer "+r.Auth.Password)
		c.header.Set("Accept", "application/vnd.github+json")
		c.address = base + "/repos/" + path(r.Repository) + "/statuses/" + r.Commit
		c.body = status(githubStates[r.State], r)
	case "gitea":
		c.header.Set("Authorization", "token "+r.Auth.Password)
		c.address = base + "/api/v1/repos/" + path(r.Repository) + "/statuses/" + r.Commit
		c.body = status(githubStates[r.State], r)
	case "gitlab":
		c.header.Set("Authorization", "Bearer "+r.Auth.Password)
		c.address = base + "/api/v4/projects/" + url.PathEscape(r.Repository) + "/statuses/" + r.Commit
		c.body = map[string]string{"state": gitlabStates[r.State], "name": r.Context, "target_url": r.Link, "description": r.Description}
	case "bitbucket":
		if u.Host == "bitbucket.org" {
			base = "https://api.bitbucket.org"
		}
		login(c.header, r.Auth)
		c.address = base + "/2.0/repositories/" + path(r.Repository) + "/commit/" + r.Commit + "/statuses/build"
		c.body = map[string]string{"state": bitbucketStates[r.State], "key": key(r.Context), "name": r.Context, "url": r.Link, "description": r.Description}
	case "azure-repos":
		project, repository, ok := strings.Cut(r.Repository, "/_git/")
		if !ok {
			return nil, errors.New("repository has not the form ORGANIZATION/PROJECT/_git/REPOSITORY")
		}
		c.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(":"+r.Auth.Password)))
		c.address = base + "/" + path(project) + "/_apis/git/repositories/" + path(repository) + "/commits/" + r.Commit + "/statuses?api-version=7.1"
		c.body = map[string]any{
			"state": azureStates[r.State], "description": r.Description, "targetUrl": r.Link, "context": map[string]string{"name": r.Context, "genre": "dlite"},
		}
	default:
		return nil, fmt.Errorf("the provider %q is not known", r.Provider)
	}
	return c, nil
}

// status is the body of GitHub and Gitea.
func status(state string, r *source.StatusRequest) map[string]string {
	return map[string]string{"state": state, "target_url": r.Link, "description": r.Description, "context": r.Context}
}

// login sets an access token, or the password of a user.
func login(h http.Header, a *source.Auth) {
	if a.Username == "" || a.Username == "x-token-auth" {
		h.Set("Authorization", "Bearer "+a.Password)
		return
	}
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(a.Username+":"+a.Password)))
}

// path escapes the parts of a path.
func path(text string) string {
	parts := strings.Split(strings.Trim(text, "/"), "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// key returns the key of a context: Bitbucket permits 40 characters.
func key(context string) string {
	const most = 40
	if len(context) <= most {
		return context
	}
	sum := sha256.Sum256([]byte(context))
	return hex.EncodeToString(sum[:])[:most]
}
