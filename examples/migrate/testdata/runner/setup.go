package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/httphelper"
)

// initHandler opens a stage.
type initHandler struct{ c *command }

func (t *initHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := &setupRequest{}
	task, ok := decodeTask(w, r, req)
	if !ok {
		return
	}
	if err := req.validate(); err != nil {
		httphelper.WriteBadRequest(w, err)
		return
	}
	log.Printf("task %s: init of the stage %s in the pool %s", task.ID, req.SetupVMRequest.ID, req.SetupVMRequest.PoolID)
	resp, err := t.open(r.Context(), task, req)
	if err != nil {
		log.Printf("task %s: the init failed: %v", task.ID, err)
		httphelper.WriteJSON(w, failed(err), http.StatusOK)
		return
	}
	httphelper.WriteJSON(w, resp, http.StatusOK)
}

func (t *initHandler) open(ctx context.Context, task *client.Task, req *setupRequest) (*vmResponse, error) {
	s := &req.SetupVMRequest
	if _, exists := t.c.stages.find(s.ID); exists {
		return nil, fmt.Errorf("the stage %s is open already", s.ID)
	}
	if task.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(task.Timeout)*time.Millisecond)
		defer cancel()
	}
	pool, instance, err := t.provision(ctx, strings.Split(s.PoolID, ","), s.ID)
	if err != nil {
		return nil, err
	}
	for _, f := range s.Setup.Files {
		if err := instance.write(f); err != nil {
			t.release(pool, instance)
			return nil, fmt.Errorf("could not write %s: %w", f.Path, err)
		}
	}
	t.c.stages.add(&stage{
		ID: s.ID, Pool: pool, Instance: instance.ID, Envs: s.Setup.Envs, Secrets: s.Setup.Secrets, Created: time.Now(),
		owner: task.DelegateInfo, logs: task.Logging,
	})
	t.c.metrics.stageBegan(pool)
	resp := &vmResponse{
		IPAddress: instance.Address, CommandExecutionStatus: success, PoolDriverUsed: instance.driver.name(), DelegateMetaInfo: t.c.metaInfo(task),
	}
	for _, service := range req.Services {
		resp.ServiceStatuses = append(resp.ServiceStatuses, t.startService(ctx, instance, service))
	}
	return resp, nil
}

// provision takes an instance of the first pool that has one.
func (t *initHandler) provision(ctx context.Context, pools []string, stageID string) (string, *instance, error) {
	var last error
	for i, name := range pools {
		in, err := t.c.pools.provision(ctx, name, stageID)
		if err == nil {
			if i > 0 {
				t.c.metrics.fellBack(name)
			}
			return name, in, nil
		}
		log.Printf("the pool %s has no instance for %s: %v", name, stageID, err)
		last = fmt.Errorf("pool %s: %w", name, err)
	}
	return "", nil, last
}

func (t *initHandler) release(pool string, in *instance) {
	if err := t.c.pools.destroy(context.Background(), pool, in.ID); err != nil {
		log.Printf("could not destroy the instance %s: %v", in.ID, err)
	}
}

func (t *initHandler) startService(ctx context.Context, in *instance, s serviceSpec) serviceStatus {
	step := &stepSpec{ID: s.ID, Name: s.ID, Detach: true}
	step.Run.Entrypoint = s.Run
	if _, err := in.driver.run(ctx, in, step, nil, t.c.logs.writer(in.ID, s.ID)); err != nil {
		log.Printf("the service %s did not start: %v", s.ID, err)
		return serviceStatus{ID: s.ID, Status: failure}
	}
	return serviceStatus{ID: s.ID, Status: success}
}

// metaInfo names this delegate, or the one that the manager chose.
func (c *command) metaInfo(task *client.Task) delegateMetaInfo {
	info := delegateMetaInfo{}
	if c.delegateInfo != nil {
		info.HostName, info.ID = c.delegateInfo.Host, c.delegateInfo.ID
	}
	if task != nil && task.DelegateInfo.ID != "" {
		info.ID = task.DelegateInfo.ID
	}
	return info
}
