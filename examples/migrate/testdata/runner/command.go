package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/wings-software/dlite/client"
	"github.com/wings-software/dlite/delegate"
	"github.com/wings-software/dlite/poller"
	"github.com/wings-software/dlite/router"
)

// command is the running program.
type command struct {
	env          *envConfig
	delegateInfo *poller.DelegateInfo
	pools        *poolManager
	stages       *stageStore
	metrics      *metrics
	logs         *logStore
}

func newCommand(env *envConfig) *command {
	c := &command{env: env, metrics: newMetrics(), logs: newLogStore(env.Limits.Output)}
	c.stages = newStageStore()
	c.pools = newPoolManager(c.metrics)
	return c
}

// run registers the runner and polls until ctx ends.
func (c *command) run(ctx context.Context) error {
	if err := c.setUpPools(ctx); err != nil {
		return err
	}
	defer c.pools.destroyAll(context.WithoutCancel(ctx))
	p, err := c.registerPoller(ctx, c.tags())
	if err != nil {
		log.Printf("could not register the poller: %v", err)
		return err
	}
	if err := c.registerCapacity(ctx); err != nil {
		log.Printf("could not register the capacity: %v", err)
	}
	server := &http.Server{Addr: c.env.Server.Address, Handler: Handler(p, c), ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	errs := make(chan error, 3)
	wg.Add(3)
	go func() {
		defer wg.Done()
		if err := server.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			errs <- fmt.Errorf("the HTTP server ended: %w", err)
		}
	}()
	go func() {
		defer wg.Done()
		c.purge(ctx)
	}()
	go func() {
		defer wg.Done()
		errs <- p.Poll(ctx, c.env.Manager.ParallelWorkers, c.delegateInfo.ID, c.env.Manager.PollInterval)
	}()
	<-ctx.Done()
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		log.Printf("could not stop the HTTP server: %v", err)
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// tags are the names of the pools.
func (c *command) tags() []string {
	return append([]string{}, c.env.Pools.Names...)
}

// connect makes the client of the manager.
func (c *command) connect() client.Client {
	m := &c.env.Manager
	if m.Token != "" {
		return delegate.NewFromToken(m.Endpoint, m.AccountID, m.Token, m.SkipVerify, m.CertsDir)
	}
	return delegate.New(m.Endpoint, m.AccountID, m.AccountSecret, m.SkipVerify, m.CertsDir)
}

func (c *command) registerPoller(ctx context.Context, tags []string) (*poller.Poller, error) {
	m := &c.env.Manager
	r := router.NewRouter(routeMap(c))
	log.Printf("the runner has the routes %v", r.Routes())
	client := delegate.New(m.Endpoint, m.AccountID, m.AccountSecret, m.SkipVerify, m.CertsDir)
	p := poller.New(m.AccountID, m.AccountSecret, m.Name, tags, client, r)
	info, err := p.Register(ctx)
	if err != nil {
		return nil, err
	}
	c.delegateInfo = info
	log.Printf("registered %s as %s at %s (%s)", info.Name, info.ID, info.Host, info.IP)
	return p, nil
}

// registerCapacity tells the manager how many stages may run.
func (c *command) registerCapacity(ctx context.Context) error {
	if c.env.Limits.Stages == 0 {
		return nil
	}
	cl := c.connect()
	return cl.RegisterCapacity(ctx, c.delegateInfo.ID, &client.DelegateCapacity{MaxBuilds: c.env.Limits.Stages})
}

func (c *command) setUpPools(ctx context.Context) error {
	for _, name := range c.env.Pools.Names {
		d := newProcessDriver(c.env.Pools.Root)
		if err := c.pools.add(ctx, name, d, c.env.Pools.Size, c.env.Pools.Limit); err != nil {
			return fmt.Errorf("could not set up the pool %s: %w", name, err)
		}
	}
	return nil
}

// purge destroys old instances until ctx ends.
func (c *command) purge(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, stage := range c.stages.olderThan(now.Add(-c.env.Pools.Purge)) {
				log.Printf("the stage %s is too old and is destroyed", stage.ID)
				if err := c.endStage(ctx, stage.ID); err != nil {
					log.Printf("could not destroy the stage %s: %v", stage.ID, err)
				}
			}
		}
	}
}

// endStage destroys the instance of a stage and forgets it.
func (c *command) endStage(ctx context.Context, id string) error {
	stage, ok := c.stages.remove(id)
	if !ok {
		return nil
	}
	c.logs.remove(id)
	c.metrics.stageEnded(stage.Pool)
	return c.pools.destroy(ctx, stage.Pool, stage.Instance)
}
