package drone

import (
	"encoding/json"
	"strconv"
	"strings"
)

// variables returns the variables of a stage.
func (c *Client) variables(d *details) map[string]string {
	b, r, s := d.Build, d.Repo, d.Stage
	num := func(rec record, name string) string { return strconv.FormatInt(rec.number(name), 10) }
	flag := func(rec record, name string) string { return strconv.FormatBool(rec.flag(name)) }
	status := statusSuccess
	link := strings.TrimRight(d.System.Link, "/")
	if link == "" && d.System.Host != "" {
		link = d.System.Proto + "://" + d.System.Host
	}
	v := map[string]string{
		"CI": "true", "DRONE": "true",

		"DRONE_SYSTEM_PROTO": d.System.Proto, "DRONE_SYSTEM_HOST": d.System.Host, "DRONE_SYSTEM_HOSTNAME": d.System.Host,
		"DRONE_SYSTEM_VERSION": d.System.Version,
		"DRONE_RUNNER_HOST":    c.cfg.Name, "DRONE_RUNNER_HOSTNAME": c.cfg.Name, "DRONE_RUNNER_PLATFORM": c.cfg.OS + "/" + c.cfg.Arch,
		"DRONE_MACHINE": c.cfg.Name,

		"DRONE_REPO": r.text("slug"), "DRONE_REPO_SCM": r.text("scm"), "DRONE_REPO_OWNER": r.text("namespace"),
		"DRONE_REPO_NAMESPACE": r.text("namespace"), "DRONE_REPO_NAME": r.text("name"), "DRONE_REPO_LINK": r.text("link"),
		"DRONE_REPO_BRANCH": r.text("default_branch"), "DRONE_REMOTE_URL": r.text("git_http_url"),
		"DRONE_GIT_HTTP_URL": r.text("git_http_url"), "DRONE_GIT_SSH_URL": r.text("git_ssh_url"),
		"DRONE_REPO_VISIBILITY": r.text("visibility"), "DRONE_REPO_PRIVATE": flag(r, "private"),

		"DRONE_BRANCH": b.text("target"), "DRONE_SOURCE_BRANCH": b.text("source"), "DRONE_TARGET_BRANCH": b.text("target"),
		"DRONE_COMMIT": b.text("after"), "DRONE_COMMIT_SHA": b.text("after"), "DRONE_COMMIT_BEFORE": b.text("before"),
		"DRONE_COMMIT_AFTER": b.text("after"), "DRONE_COMMIT_REF": b.text("ref"), "DRONE_COMMIT_BRANCH": b.text("target"),
		"DRONE_COMMIT_LINK": b.text("link"), "DRONE_COMMIT_MESSAGE": b.text("message"), "DRONE_COMMIT_AUTHOR": b.text("author_login"),
		"DRONE_COMMIT_AUTHOR_NAME": b.text("author_name"), "DRONE_COMMIT_AUTHOR_EMAIL": b.text("author_email"),
		"DRONE_COMMIT_AUTHOR_AVATAR": b.text("author_avatar"),

		"DRONE_BUILD_NUMBER": num(b, "number"), "DRONE_BUILD_PARENT": num(b, "parent"), "DRONE_BUILD_EVENT": b.text("event"),
		"DRONE_BUILD_ACTION": b.text("action"), "DRONE_BUILD_STATUS": status, "DRONE_BUILD_CREATED": num(b, "created"),
		"DRONE_BUILD_STARTED": num(b, "started"), "DRONE_BUILD_FINISHED": num(b, "finished"), "DRONE_BUILD_TRIGGER": b.text("trigger"),
		"DRONE_BUILD_SENDER": b.text("sender"), "DRONE_BUILD_DEBUG": flag(b, "debug"),
		"DRONE_BUILD_LINK": link + "/" + r.text("slug") + "/" + num(b, "number"),
		"DRONE_DEPLOY_TO":  b.text("deploy_to"), "DRONE_DEPLOY_ID": num(b, "deploy_id"), "DRONE_CRON": b.text("cron"),

		"DRONE_STAGE_NAME": s.text("name"), "DRONE_STAGE_NUMBER": num(s, "number"), "DRONE_STAGE_KIND": s.text("kind"),
		"DRONE_STAGE_TYPE": s.text("type"), "DRONE_STAGE_MACHINE": c.cfg.Name, "DRONE_STAGE_OS": s.text("os"),
		"DRONE_STAGE_ARCH": s.text("arch"), "DRONE_STAGE_VARIANT": s.text("variant"), "DRONE_STAGE_VERSION": num(s, "version"),
		"DRONE_STAGE_STATUS": status, "DRONE_STAGE_DEPENDS_ON": strings.Join(s.texts("depends_on"), ","),
	}
	var params map[string]string
	_ = json.Unmarshal(b["params"], &params)
	for name, value := range params {
		if _, ours := v[name]; !ours {
			v[name] = value
		}
	}
	failed := failedStages(b)
	v["DRONE_FAILED_STAGES"] = strings.Join(failed, ",")
	if len(failed) > 0 {
		v["DRONE_BUILD_STATUS"] = statusFailure
	}
	switch ref := b.text("ref"); {
	case strings.HasPrefix(ref, "refs/tags/"):
		v["DRONE_TAG"] = strings.TrimPrefix(ref, "refs/tags/")
		addSemver(v, v["DRONE_TAG"])
		addCalver(v, v["DRONE_TAG"])
	case b.text("event") == "pull_request":
		v["DRONE_PULL_REQUEST"] = pullRequest(ref)
		v["DRONE_PULL_REQUEST_TITLE"] = b.text("title")
	}
	for name, value := range oldNames(v) {
		v[name] = value
	}
	return v
}

// texts returns a member that is a list of texts.
func (r record) texts(name string) (list []string) {
	_ = json.Unmarshal(r[name], &list)
	return list
}

// failedStages returns the names of the stages of a build that have failed.
func failedStages(build record) (names []string) {
	var stages []record
	_ = json.Unmarshal(build["stages"], &stages)
	for _, s := range stages {
		switch s.text("status") {
		case statusFailure, statusError, statusKilled:
			names = append(names, s.text("name"))
		}
	}
	return names
}

// pullRequest returns the number of a pull request from its ref, such as refs/pull/7/head or
// refs/merge-requests/7/head.
func pullRequest(ref string) string {
	for _, part := range strings.Split(ref, "/") {
		if _, err := strconv.Atoi(part); err == nil {
			return part
		}
	}
	return ""
}

// addSemver adds the parts of a tag that is a semantic version.
func addSemver(v map[string]string, tag string) {
	text := strings.TrimPrefix(tag, "v")
	rest, build, _ := strings.Cut(text, "+")
	core, pre, _ := strings.Cut(rest, "-")
	parts := strings.Split(core, ".")
	if len(parts) != 3 {
		v["DRONE_SEMVER_ERROR"] = tag + " is not in dotted-tri format"
		return
	}
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 64); err != nil {
			v["DRONE_SEMVER_ERROR"] = tag + " is not in dotted-tri format"
			return
		}
	}
	v["DRONE_SEMVER"], v["DRONE_SEMVER_SHORT"] = text, core
	v["DRONE_SEMVER_MAJOR"], v["DRONE_SEMVER_MINOR"], v["DRONE_SEMVER_PATCH"] = parts[0], parts[1], parts[2]
	v["DRONE_SEMVER_PRERELEASE"], v["DRONE_SEMVER_BUILD"] = pre, build
}

// addCalver adds the parts of a tag that is a version by the calendar, such as v2026.11.2-rc1: its first number is a year.
func addCalver(v map[string]string, tag string) {
	parts := strings.SplitN(strings.TrimPrefix(tag, "v"), ".", 3)
	if len(parts) < 2 {
		return
	}
	year, err := strconv.Atoi(parts[0])
	_, minorErr := strconv.Atoi(parts[1])
	if err != nil || minorErr != nil || year < 19 || year > 99 && year < 2019 || year > 9998 {
		return
	}
	short := parts[0] + "." + parts[1]
	v["DRONE_CALVER_MAJOR_MINOR"], v["DRONE_CALVER_MAJOR"], v["DRONE_CALVER_MINOR"] = short, parts[0], parts[1]
	modifier := ""
	if len(parts) == 3 {
		micro := parts[2]
		micro, modifier, _ = strings.Cut(micro, "-")
		v["DRONE_CALVER_MICRO"] = micro
		short += "." + micro
	}
	v["DRONE_CALVER_SHORT"], v["DRONE_CALVER"] = short, short
	if modifier != "" {
		v["DRONE_CALVER_MODIFIER"], v["DRONE_CALVER"] = modifier, short+"-"+modifier
	}
}

// oldNames returns the variables under the names that old versions of Drone use.
func oldNames(v map[string]string) map[string]string {
	out := map[string]string{}
	for old, name := range map[string]string{
		"CI_REPO": "DRONE_REPO", "CI_REPO_NAME": "DRONE_REPO", "CI_REPO_LINK": "DRONE_REPO_LINK", "CI_REPO_REMOTE": "DRONE_GIT_HTTP_URL",
		"CI_REMOTE_URL": "DRONE_GIT_HTTP_URL", "CI_REPO_PRIVATE": "DRONE_REPO_PRIVATE",
		"CI_BRANCH": "DRONE_BRANCH", "CI_COMMIT_SHA": "DRONE_COMMIT_SHA", "CI_COMMIT_REF": "DRONE_COMMIT_REF",
		"CI_COMMIT_BRANCH": "DRONE_COMMIT_BRANCH", "CI_COMMIT_MESSAGE": "DRONE_COMMIT_MESSAGE",
		"CI_COMMIT_AUTHOR_NAME": "DRONE_COMMIT_AUTHOR_NAME", "CI_COMMIT_AUTHOR_EMAIL": "DRONE_COMMIT_AUTHOR_EMAIL",
		"CI_COMMIT_AUTHOR_AVATAR": "DRONE_COMMIT_AUTHOR_AVATAR", "CI_COMMIT_AUTHOR": "DRONE_COMMIT_AUTHOR",
		"CI_BUILD_NUMBER": "DRONE_BUILD_NUMBER", "CI_BUILD_EVENT": "DRONE_BUILD_EVENT", "CI_BUILD_STATUS": "DRONE_BUILD_STATUS",
		"CI_BUILD_LINK": "DRONE_BUILD_LINK", "CI_BUILD_TARGET": "DRONE_DEPLOY_TO", "CI_BUILD_CREATED": "DRONE_BUILD_CREATED",
		"CI_BUILD_STARTED": "DRONE_BUILD_STARTED", "CI_BUILD_FINISHED": "DRONE_BUILD_FINISHED",
		"CI_PARENT_BUILD_NUMBER": "DRONE_BUILD_PARENT", "CI_JOB_NUMBER": "DRONE_STAGE_NUMBER", "CI_JOB_STATUS": "DRONE_STAGE_STATUS",
		"CI_TAG": "DRONE_TAG", "CI_PULL_REQUEST": "DRONE_PULL_REQUEST", "CI_SYSTEM_HOST": "DRONE_SYSTEM_HOST",
		"CI_SYSTEM_VERSION": "DRONE_SYSTEM_VERSION",
	} {
		if value, ok := v[name]; ok {
			out[old] = value
		}
	}
	out["CI_SYSTEM_NAME"] = "drone"
	return out
}
