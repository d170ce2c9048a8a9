package steps

import (
	"net/url"
	"strings"

	"github.com/delegate-io/dlite/manager/pipeline/internal/expression"
	"github.com/delegate-io/dlite/task/stage"
)

// clone returns the clone of the codebase, which the delegate carries out in the init.
func (b *stageBuilder) clone(f fields) (*stage.Clone, error) {
	c, err := b.table.clone(f)
	if err != nil {
		return nil, err
	}
	if b.info.Triggered && f.text("depth") == "" {
		c.Depth = 0
	}
	b.pin(c)
	b.merge(c, f)
	return c, nil
}

// pin selects the commit that the trigger names, so that all stages of a run have the same.
func (b *stageBuilder) pin(c *stage.Clone) {
	if commit, _ := scalarText(b.info.Codebase["commitSha"]); commit != "" && c.Commit == "" {
		c.Commit = expression.Escape(commit)
		c.Tag = "" // a clone has one of them; the commit is part of the tag
	}
}

// merge makes the clone of a pull request the merge into its target, as far as the trigger names both commits.
func (b *stageBuilder) merge(c *stage.Clone, f fields) {
	if f.sub("build").text("type") != "PR" {
		return
	}
	if ref, _ := scalarText(b.info.Codebase["commitRef"]); strings.HasPrefix(ref, "refs/") {
		c.Ref = expression.Escape(ref)
	}
	target, _ := scalarText(b.info.Codebase["targetBranch"])
	if target != "" && c.Commit != "" && !strings.EqualFold(f.text("prCloneStrategy"), "SourceBranch") {
		c.Branch, c.Merge = expression.Escape(target), true
	}
}

// clone reads the fields that a codebase and a GitClone step share.
func (t *Table) clone(f fields) (*stage.Clone, error) {
	connector, ok := t.connector(f, GitConnector)
	address := f.text("repoName")
	if ok {
		address = repositoryURL(connector.URL, address)
	} else if !strings.Contains(address, "://") && !strings.HasPrefix(address, "/") {
		if connector, ok = t.connectors[t.codebase]; t.missing != nil && !ok && !f.has("connectorRef") {
			t.missing["codebase"] = GitConnector
			connector.URL = "https://codebase.invalid"
		} else if !ok || f.has("connectorRef") {
			f.fail("connectorRef", "is required, unless repoName is the whole URL of the repository or the settings of the pipeline service name a connector in codebase")
		}
		address = repositoryURL(connector.URL, address)
	}
	submodules := strings.ToLower(f.text("submoduleStrategy"))
	c := &stage.Clone{
		URL: address, Depth: f.number("depth", 50), LFS: f.boolean("lfs", false), Dir: inWorkspace(f.text("cloneDirectory")),
		Submodules: submodules == "true" || submodules == "recursive", Sparse: f.list("sparseCheckout"), SkipVerify: !f.boolean("sslVerify", true),
	}
	build := f.sub("build")
	spec := build.sub("spec")
	switch kind := build.text("type"); kind {
	case "":
	case "branch":
		c.Branch = spec.required("branch")
	case "tag":
		c.Tag = spec.required("tag")
	case "PR":
		c.Ref = "refs/pull/" + spec.required("number") + "/head"
	case "commitSha":
		c.Commit = spec.required("commitSha")
		c.Branch = spec.text("branch")
	default:
		build.fail("type", "is %q: use branch, tag, PR or commitSha", kind)
	}
	if ok {
		if u, err := url.Parse(address); err == nil {
			c.Auth = connector.auth(u.Host)
		}
	}
	return c, *f.err
}

// RepositoryURL returns the address of a codebase by its connector and its name, or an empty text if the
// settings do not have the connector.
func (t *Table) RepositoryURL(connector, name string) string {
	c, err := t.clone(newFields("", map[string]any{"connectorRef": connector, "repoName": name}))
	if err != nil {
		return ""
	}
	return c.URL
}

// repositoryURL joins the address of an account with the name of a repository.
func repositoryURL(account, name string) string {
	if name == "" {
		return account
	}
	return strings.TrimSuffix(account, "/") + "/" + strings.TrimPrefix(name, "/")
}
