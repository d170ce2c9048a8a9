package dronetest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Build is a build to add to a server.
type Build struct {
	// Config is the configuration, the content of .drone.yml.
	Config string
	// Stages are the names of the pipelines to run. Nil means one, "default".
	Stages []string
	// Type is the type of the pipelines. Empty means "docker".
	Type string
	// Labels are the labels of the stages.
	Labels map[string]string
	// OS and Arch are the platform of the stages. Empty means linux and amd64. An empty Variant or
	// Kernel suits every runner.
	OS, Arch, Variant, Kernel string
	// Limit is how many stages with the same name may be open at once (concurrency.limit). Zero
	// means no limit.
	Limit int
	// Secrets are the secrets of the repository.
	Secrets map[string]string
	// Netrc are the machine, login and password of the repository, or nil.
	Netrc *[3]string
	// Members replace members of the build, such as "event" and "ref".
	Members map[string]any
	// Repository replaces members of the repository, such as "trusted" and "timeout".
	Repository map[string]any
}

// Stage is a stage as the server knows it.
type Stage struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Error    string `json:"error"`
	ExitCode int    `json:"exit_code"`
	Machine  string `json:"machine"`
	Started  int64  `json:"started"`
	Stopped  int64  `json:"stopped"`
	Version  int64  `json:"version"`
	Steps    []Step `json:"-"`
	// Ends counts how often a runner has reported the end of the stage.
	Ends int `json:"-"`
}

// Step is a step as the server knows it.
type Step struct {
	ID        int64  `json:"id"`
	Number    int    `json:"number"`
	Name      string `json:"name"`
	Status    string `json:"status"`
	Error     string `json:"error"`
	ErrIgnore bool   `json:"errignore"`
	ExitCode  int    `json:"exit_code"`
	Started   int64  `json:"started"`
	Stopped   int64  `json:"stopped"`
	Version   int64  `json:"version"`
	Detached  bool   `json:"detached"`
	Image     string `json:"image"`
	Schema    string `json:"schema"`
	// Card is the data of the uploaded card.
	Card string `json:"-"`
	// Log is the uploaded log, nil without one. Live are the lines of the live stream.
	Log, Live []Line `json:"-"`
	// Ends counts how often a runner has reported the end of the step.
	Ends int `json:"-"`
}

// Line is a line of a log.
type Line struct {
	Pos  int    `json:"pos"`
	Out  string `json:"out"`
	Time int64  `json:"time"`
}

// object is a row of the server's tables.
type object map[string]any

func (o object) int(name string) int64 {
	switch v := o[name].(type) {
	case int64:
		return v
	case int:
		return int64(v)
	case float64:
		return int64(v)
	}
	return 0
}

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

// into decodes the object into a struct.
func (o object) into(out any) {
	b, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		panic(fmt.Sprintf("dronetest: %v", err))
	}
}

func final(status string) bool {
	return slices.Contains([]string{"success", "failure", "killed", "error", "skipped", "declined"}, status)
}

// Add adds a build with its stages and returns its id. The stages are pending.
func (s *Server) Add(b Build) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	build := &buildRow{id: s.lastID, submitted: b}
	build.row = object{
		"id": build.id, "repo_id": int64(1), "number": build.id, "status": "pending", "event": "push", "action": "",
		"link": "https://git.example/octo/hello/commit/1", "message": "a commit", "before": "", "after": "a-commit",
		"ref": "refs/heads/main", "source": "main", "target": "main", "author_login": "octo", "author_name": "Octo",
		"author_email": "octo@example.com", "created": unix(), "updated": unix(), "version": int64(1),
	}
	maps.Copy(build.row, b.Members)
	names := b.Stages
	if names == nil {
		names = []string{"default"}
	}
	for i, name := range names {
		s.lastID++
		st := &stageRow{id: s.lastID, build: build}
		st.row = object{
			"id": st.id, "repo_id": int64(1), "build_id": build.id, "number": i + 1, "name": name, "kind": "pipeline",
			"type": or(b.Type, "docker"), "status": "pending", "errignore": false, "exit_code": 0, "os": or(b.OS, "linux"),
			"arch": or(b.Arch, "amd64"), "variant": b.Variant, "kernel": b.Kernel, "limit": b.Limit,
			"started": 0, "stopped": 0, "created": unix(), "updated": unix(), "version": int64(1), "on_success": true, "on_failure": false,
		}
		if len(b.Labels) > 0 {
			st.row["labels"] = b.Labels
		}
		s.stages[st.id] = st
		build.stages = append(build.stages, st)
	}
	s.builds[build.id] = build
	s.notify()
	return build.id
}

// Cancel cancels a build, as a user does.
func (s *Server) Cancel(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.builds[id]
	if b == nil || final(b.row.text("status")) {
		return
	}
	b.row["status"] = "killed"
	for _, st := range b.stages {
		if final(st.row.text("status")) {
			continue
		}
		status := "killed"
		if st.row.int("started") == 0 {
			status = "skipped"
		}
		st.set(object{"status": status, "stopped": unix()})
		for _, step := range st.steps {
			if !final(step.row.text("status")) {
				status := "killed"
				if step.row.int("started") == 0 {
					status = "skipped"
				}
				step.set(object{"status": status, "stopped": unix()})
			}
		}
	}
	for _, w := range s.watchers[id] {
		close(w)
	}
	delete(s.watchers, id)
	s.notify()
}

// Wait waits until all stages of a build have ended, and returns them.
func (s *Server) Wait(ctx context.Context, id int64) ([]Stage, error) {
	for {
		s.mu.Lock()
		changed, over := s.changed, true
		for _, st := range s.builds[id].stages {
			over = over && final(st.row.text("status"))
		}
		s.mu.Unlock()
		if over {
			return s.Stages(id), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.Stages(id), ctx.Err()
		}
	}
}

// Stages returns the stages of a build.
func (s *Server) Stages(id int64) (list []Stage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range s.builds[id].stages {
		var st Stage
		row.row.into(&st)
		st.Ends = row.ends
		for _, r := range row.steps {
			var step Step
			r.row.into(&step)
			step.Card = string(s.cards[r.id])
			step.Log, step.Live, step.Ends = slices.Clone(r.log), slices.Clone(r.live), r.ends
			st.Steps = append(st.Steps, step)
		}
		list = append(list, st)
	}
	return list
}

// Await waits until a condition holds for the stages of a build, and returns them.
func (s *Server) Await(ctx context.Context, id int64, holds func([]Stage) bool) ([]Stage, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if list := s.Stages(id); holds(list) {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.Stages(id), ctx.Err()
		}
	}
}
