package trigger_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/internal/source"
	"github.com/delegate-io/dlite/manager/pipeline/internal/trigger"
)

const (
	commit = "1111111111111111111111111111111111111111"
	before = "2222222222222222222222222222222222222222"
	zeros  = "0000000000000000000000000000000000000000"
	secret = "visibly-fake-webhook-secret"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func decode(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var v map[string]any
	require.NoError(tb, json.Unmarshal([]byte(text), &v))
	number(v)
	return v
}

// number makes whole numbers int64, as the service does.
func number(v map[string]any) {
	for name, value := range v {
		switch value := value.(type) {
		case float64:
			v[name] = int64(value)
		case map[string]any:
			number(value)
		}
	}
}

const gitHubPull = `{"action":"synchronize","number":7,"pull_request":{"number":7,"labels":[{"name":"slow"},{"name":"load"}],"title":"Fix","body":"why","state":"open","html_url":"https://git.invalid/pr/7","merge_commit_sha":"` + before + `",
"head":{"ref":"fix","sha":"` + commit + `","repo":{"full_name":"acme/web"}},"base":{"ref":"main","sha":"` + before + `","repo":{"full_name":"acme/web"}}},
"repository":{"clone_url":"https://git.invalid/acme/web.git"},"sender":{"login":"ann","id":5}}`

const gitLabRequest = `{"object_kind":"merge_request","user":{"username":"ann","id":5},"project":{"git_http_url":"https://git.invalid/acme/web.git"},
"object_attributes":{"iid":7,"title":"Fix","description":"why","state":"opened","action":"update","oldrev":"` + before + `","url":"https://git.invalid/pr/7",
"source_branch":"fix","target_branch":"main","source_project_id":1,"target_project_id":1,"last_commit":{"id":"` + commit + `","message":"m"}}}`

const bitbucketPull = `{"actor":{"nickname":"ann","account_id":"5"},"repository":{"links":{"html":{"href":"https://git.invalid/acme/web"}}},
"pullrequest":{"id":7,"title":"Fix","description":"why","state":"OPEN","links":{"html":{"href":"https://git.invalid/pr/7"}},
"source":{"branch":{"name":"fix"},"commit":{"hash":"` + commit + `"},"repository":{"full_name":"acme/web"}},
"destination":{"branch":{"name":"main"},"commit":{"hash":"` + before + `"},"repository":{"full_name":"acme/web"}}}}`

func gitHubPush(ref, after string) string {
	return `{"ref":"` + ref + `","before":"` + before + `","after":"` + after + `","head_commit":{"id":"` + commit + `","message":"m"},
"repository":{"clone_url":"https://git.invalid/acme/web.git"},"pusher":{"name":"ann","email":"ann@example.com"},"sender":{"login":"ann"}}`
}

func gitLabPush(kind, ref, after string) string {
	return `{"object_kind":"` + kind + `","ref":"` + ref + `","before":"` + before + `","after":"` + after + `","checkout_sha":"` + commit + `","user_username":"ann",
"project":{"git_http_url":"https://git.invalid/acme/web.git"},"commits":[{"id":"` + commit + `","message":"m"}]}`
}

func bitbucketChange(kind, name string) string {
	return `{"new":{"type":"` + kind + `","name":"` + name + `","target":{"hash":"` + commit + `","message":"m"}},"old":{"target":{"hash":"` + before + `"}}}`
}

func TestEachProviderSaysWhatChanged(t *testing.T) {
	t.Parallel()
	type want struct{ kind, action, branch, tag, number string }
	for name, test := range map[string]struct {
		provider trigger.Provider
		header   http.Header
		body     string
		want     []want
	}{
		"a push to GitHub":               {trigger.GitHub, header("X-GitHub-Event", "push"), gitHubPush("refs/heads/feature/a", commit), []want{{"push", "", "feature/a", "", ""}}},
		"a tag at GitHub":                {trigger.GitHub, header("X-GitHub-Event", "push"), gitHubPush("refs/tags/v1", before), []want{{"tag", "", "", "v1", ""}}},
		"a removed branch at GitHub":     {trigger.GitHub, header("X-GitHub-Event", "push"), gitHubPush("refs/heads/a", zeros), nil},
		"a test of GitHub":               {trigger.GitHub, header("X-GitHub-Event", "ping"), `{"zen":"x"}`, nil},
		"a pull request at GitHub":       {trigger.GitHub, header("X-GitHub-Event", "pull_request"), gitHubPull, []want{{"pull_request", "updated", "main", "", "7"}}},
		"a release at GitHub":            {trigger.GitHub, header("X-GitHub-Event", "release"), `{"action":"published","release":{"tag_name":"v1"}}`, []want{{"release", "published", "", "v1", ""}}},
		"a comment at GitHub":            {trigger.GitHub, header("X-GitHub-Event", "issue_comment"), `{"action":"created","issue":{"number":7,"pull_request":{"html_url":"u"}}}`, []want{{"comment", "created", "", "", "7"}}},
		"a push to Gitea":                {trigger.Gitea, header("X-Gitea-Event", "push"), gitHubPush("refs/heads/a", commit), []want{{"push", "", "a", "", ""}}},
		"a tag at Gitea":                 {trigger.Gitea, header("X-Gitea-Event", "push"), gitHubPush("refs/tags/v1", commit), []want{{"tag", "", "", "v1", ""}}},
		"a created tag at Gitea":         {trigger.Gitea, header("X-Gitea-Event", "create"), `{"ref":"v1","ref_type":"tag"}`, nil}, // the push of the tag starts the run
		"a pull request at Gitea":        {trigger.Gitea, header("X-Gitea-Event", "pull_request_sync"), gitHubPull, []want{{"pull_request", "updated", "main", "", "7"}}},
		"a push to GitLab":               {trigger.GitLab, nil, gitLabPush("push", "refs/heads/a", commit), []want{{"push", "", "a", "", ""}}},
		"a tag at GitLab":                {trigger.GitLab, nil, gitLabPush("tag_push", "refs/tags/v1", commit), []want{{"tag", "", "", "v1", ""}}},
		"a removed tag at GitLab":        {trigger.GitLab, nil, gitLabPush("tag_push", "refs/tags/v1", zeros), nil},
		"a merge request at GitLab":      {trigger.GitLab, nil, gitLabRequest, []want{{"pull_request", "updated", "main", "", "7"}}},
		"a release at GitLab":            {trigger.GitLab, nil, `{"object_kind":"release","action":"create","tag":"v1"}`, []want{{"release", "published", "", "v1", ""}}},
		"a comment at GitLab":            {trigger.GitLab, nil, `{"object_kind":"note","object_attributes":{"action":"update"},"merge_request":{"iid":7,"target_branch":"main"}}`, []want{{"comment", "edited", "main", "", "7"}}},
		"two changes at Bitbucket":       {trigger.Bitbucket, header("X-Event-Key", "repo:push"), `{"push":{"changes":[` + bitbucketChange("branch", "a") + `,{"new":null,"closed":true},` + bitbucketChange("tag", "v1") + `]}}`, []want{{"push", "", "a", "", ""}, {"tag", "", "", "v1", ""}}},
		"a pull request at Bitbucket":    {trigger.Bitbucket, header("X-Event-Key", "pullrequest:created"), bitbucketPull, []want{{"pull_request", "opened", "main", "", "7"}}},
		"a merge at Bitbucket":           {trigger.Bitbucket, header("X-Event-Key", "pullrequest:fulfilled"), bitbucketPull, []want{{"pull_request", "merged", "main", "", "7"}}},
		"a comment at Bitbucket":         {trigger.Bitbucket, header("X-Event-Key", "pullrequest:comment_created"), bitbucketPull, []want{{"comment", "created", "main", "", "7"}}},
		"members with other types":       {trigger.GitHub, header("X-GitHub-Event", "pull_request"), `{"action":1.5,"pull_request":[{"head":"x"}]}`, []want{{"pull_request", "1", "", "", ""}}},
		"a reference without a meaning":  {trigger.GitHub, header("X-GitHub-Event", "push"), gitHubPush("refs/notes/a", commit), nil},
		"a call of a custom webhook":     {trigger.Custom, nil, `{}`, []want{{"call", "", "", "", ""}}},
		"an unknown event of a provider": {trigger.GitLab, nil, `{"object_kind":"pipeline"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, err := trigger.Read(test.provider, test.header, decode(t, test.body))
			require.NoError(t, err)
			var got []want
			for _, e := range events {
				got = append(got, want{e.Type, e.Action, e.Branch, e.Tag, e.Number})
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestAPullRequestHasItsCommitsAndItsPerson(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		provider trigger.Provider
		header   http.Header
		body     string
	}{
		"GitHub":    {trigger.GitHub, header("X-GitHub-Event", "pull_request"), gitHubPull},
		"Gitea":     {trigger.Gitea, header("X-Gitea-Event", "pull_request"), gitHubPull},
		"GitLab":    {trigger.GitLab, nil, gitLabRequest},
		"Bitbucket": {trigger.Bitbucket, header("X-Event-Key", "pullrequest:updated"), bitbucketPull},
	} {
		payload := decode(t, test.body)
		events, err := trigger.Read(test.provider, test.header, payload)
		require.NoError(t, err)
		require.Len(t, events, 1, name)
		if name == "GitHub" || name == "Gitea" {
			assert.Equal(t, "slow,load", events[0].Trigger(test.provider, payload, test.header)["prLabels"], name)
		}
		codebase := events[0].Codebase()
		assert.Equal(t, map[string]any{"type": "PR", "spec": map[string]any{"number": "7"}}, codebase["build"], name)
		for member, want := range map[string]string{
			"commitSha": commit, "shortCommitSha": "1111111", "baseCommitSha": before, "sourceBranch": "fix", "targetBranch": "main", "branch": "main",
			"prTitle": "Fix", "pullRequestBody": "why", "pullRequestLink": "https://git.invalid/pr/7", "gitUser": "ann", "gitUserId": "5",
		} {
			assert.Equal(t, want, codebase[member], "%s: %s", name, member)
		}
		values := events[0].Trigger(test.provider, payload, header("X-GitHub-Event", "pull_request", "Authorization", "visibly fake", "X-Gitlab-Token", "visibly fake", "X-Hub-Signature", "visibly fake"))
		assert.Equal(t, "PR", values["event"])
		assert.Equal(t, "fix", values["sourceBranch"])
		assert.Equal(t, map[string]any{"X-GitHub-Event": "pull_request", "X-Github-Event": "pull_request", "x-github-event": "pull_request"}, values["header"], "secrets and signatures are left out")
		assert.False(t, events[0].Foreign, name)
	}
}

func TestAChangeOfAForkIsForeign(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a fork":         `{"pull_request":{"head":{"repo":{"full_name":"eve/web"}},"base":{"repo":{"full_name":"acme/web"}}}}`,
		"a removed fork": `{"pull_request":{"head":{"repo":null},"base":{"repo":{"full_name":"acme/web"}}}}`,
	} {
		events, err := trigger.Read(trigger.GitHub, header("X-GitHub-Event", "pull_request"), decode(t, body))
		require.NoError(t, err)
		assert.True(t, events[0].Foreign, name)
	}
}

func TestATextThatIsNotTheIDOfACommitIsDropped(t *testing.T) {
	t.Parallel()
	events, err := trigger.Read(trigger.GitHub, header("X-GitHub-Event", "push"), map[string]any{"ref": "refs/heads/a", "after": "--upload-pack=x", "before": zeros})
	require.NoError(t, err)
	assert.Empty(t, events[0].Commit)
	assert.Empty(t, events[0].Base)
}

func TestADeliveryWithTooManyChangesIsRefused(t *testing.T) {
	t.Parallel()
	var changes []any
	for range 21 {
		changes = append(changes, decode(t, bitbucketChange("branch", "a")))
	}
	_, err := trigger.Read(trigger.Bitbucket, header("X-Event-Key", "repo:push"), map[string]any{"push": map[string]any{"changes": changes}})
	require.ErrorContains(t, err, "21 changes: at most 20")
}

func sign(body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestOnlyTheProofOfTheProviderIsValid(t *testing.T) {
	t.Parallel()
	const body = `{"a":1}`
	proofs := map[trigger.Provider][2]string{
		trigger.GitHub: {"X-Hub-Signature-256", "sha256=" + sign(body)}, trigger.Gitea: {"X-Gitea-Signature", sign(body)},
		trigger.Bitbucket: {"X-Hub-Signature", "sha256=" + sign(body)}, trigger.GitLab: {"X-Gitlab-Token", secret}, trigger.Custom: {"X-Trigger-Token", secret},
	}
	for _, p := range trigger.Providers() {
		for q, proof := range proofs {
			h := header(proof[0], proof[1])
			assert.Equal(t, p == q, trigger.Verify(p, []byte(secret), h, []byte(body)), "%s with the proof of %s", p, q)
			assert.True(t, trigger.Signed(h))
			if p != q {
				continue
			}
			assert.False(t, trigger.Verify(p, []byte(secret+"x"), h, []byte(body)), "%s: another secret", p)
			assert.False(t, trigger.Verify(p, nil, h, []byte(body)), "%s: no secret", p)
			assert.False(t, trigger.Verify(p, []byte(secret), header(proof[0], proof[1]+"00"), []byte(body)), "%s: a longer proof", p)
			assert.False(t, trigger.Verify(p, []byte(secret), header(proof[0], proof[1][:len(proof[1])-2]), []byte(body)), "%s: a shorter proof", p)
			h.Add(proof[0], "visibly fake")
			assert.False(t, trigger.Verify(p, []byte(secret), h, []byte(body)), "%s: two proofs", p)
		}
	}
	for _, p := range []trigger.Provider{trigger.GitHub, trigger.Gitea, trigger.Bitbucket} {
		proof := proofs[p]
		assert.False(t, trigger.Verify(p, []byte(secret), header(proof[0], proof[1]), []byte(body+" ")), "%s: another body", p)
	}
	assert.False(t, trigger.Signed(header("Authorization", "visibly fake")))
}

// Each payload must be read without a panic, and its values must be encodable.
func FuzzWebhook(f *testing.F) {
	for _, body := range []string{gitHubPull, gitLabRequest, bitbucketPull, gitHubPush("refs/heads/a", commit), gitLabPush("push", "refs/tags/v1", commit), `{"push":{"changes":[` + bitbucketChange("tag", "v1") + `]}}`} {
		for _, kind := range []string{"push", "pull_request", "issue_comment", "release", "repo:push", "pullrequest:created"} {
			f.Add(kind, body, "sha256="+sign(body))
		}
	}
	f.Fuzz(func(t *testing.T, kind, body, proof string) {
		var payload map[string]any
		decoded := json.Unmarshal([]byte(body), &payload) == nil
		for _, p := range trigger.Providers() {
			h := http.Header{"X-Github-Event": {kind}, "X-Gitea-Event": {kind}, "X-Event-Key": {kind}, "X-Hub-Signature-256": {proof}, "X-Gitea-Signature": {proof}, "X-Hub-Signature": {proof}, "X-Gitlab-Token": {proof}}
			if trigger.Verify(p, []byte(secret), h, []byte(body)) && p != trigger.GitLab && proof != "sha256="+sign(body) && proof != sign(body) {
				given, err := hex.DecodeString(proof[len(proof)-64:])
				if err != nil || hex.EncodeToString(given) != sign(body) {
					t.Fatalf("the proof %q is valid for %s", proof, p)
				}
			}
			trigger.Names(p, h, []byte(body))
			if !decoded {
				continue
			}
			number(payload)
			events, err := trigger.Read(p, h, payload)
			for i := range events {
				if err == nil {
					_, err = json.Marshal([]any{events[i].Trigger(p, payload, h), events[i].Codebase()})
				}
				if err != nil {
					t.Fatal(err)
				}
				source.Match([]string{"release/*", "!x"}, events[i].Branch)
			}
		}
	})
}
