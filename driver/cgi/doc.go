// Package cgi runs standalone tasks: work that belongs to no stage and takes one call
// of a program (SPEC D8). Its handler is the router's fallback:
//
//	programs, err := cgi.New(cgi.Config{})
//	if err != nil {
//		return err
//	}
//	defer programs.Close(ctx)
//	r := router.New(routes, router.WithNotFound(programs),
//		router.WithMiddleware(secrets.Resolve(cfg)))
//
// A manager that goes by the task types of the registration has to be told those of
// such tasks: give each the handler as its route, too.
//
// The task's config names a program (PROTOCOL 2), which is called as a CGI program:
// the task's data is its standard input, what it writes to its standard output is
// the answer. Go's net/http/cgi makes such a program of an http.Handler; so does a
// shell script:
//
//	#!/bin/sh
//	echo "looking" >&2
//	printf 'Status: 200 OK\nContent-Type: application/json\n\n{"ok":true}'
//
// # Programs
//
// executable_config lists a program's URLs by os and arch, in Go's names. It is
// downloaded once and kept in the cache under its checksum (sha256, ours) or, where
// the task has none, under URL, name and version. It is verified before it is decompressed
// (zstd) or run, and a download that broke off is never run.
//
// repository names a git repository, or an archive of one (download), with a
// task.yml:
//
//	task:
//	  run:
//	    go: {module: ./cmd/task}     # go build in the repository
//	    bash: {script: run.sh}       # or a script, run by its #! line, else by bash
//
// It is fetched and built once for each commit. A ref is resolved at every call,
// since a branch moves; with sha nothing is asked of the network once it is cached.
// Git sees neither the machine's nor the user's configuration, and the
// credentials of a URL are on no command line. The deps of a task.yml
//
//	task:
//	  deps: {apt: [{name: jq}], brew: [{name: jq}]}
//
// are installed, before the first build of a commit, where [Config].InstallDeps is
// set. The target of executable_config has no meaning that would be known, and is
// ignored. A program of a repository runs in the repository's folder, which other
// calls share; any other has an empty folder of its own.
//
// What was used longest ago is removed from the cache when it exceeds
// [Config].CacheSize, and what was not used for [Config].CacheAge; never what a call
// uses, of whatever delegate.
//
// # The call
//
// A program inherits PATH, HOME and the like, and nothing else of the delegate's
// variables; then come [Config].Env, the task's envs, and at last the variables
// of a CGI call with RUN_AS_CGI=true. Go programs ignore HTTP_PROXY in a CGI call;
// HTTPS_PROXY works.
//
// Its standard error goes to the task's log while it runs, with the task's secrets
// masked; so do they in errors. Answers are passed on as they are: a task may be there
// to fetch a secret.
//
// The answer of the task is [Answer], whatever the program's status is. A program may
// also write that itself, as JSON. The task fails when the program exits with another
// code than 0, dies, breaks off (its Content-Length tells), writes no valid
// headers or more than about 23 MiB. When the task's time is up, or it is aborted, the
// program's process group gets SIGTERM and, after [Config].Grace, SIGKILL. Whatever a
// program leaves behind in its process group has a second to finish its output and
// is killed. A program that puts itself into a session of its own is out of reach.
//
// Start reading at cgi.go.
package cgi
