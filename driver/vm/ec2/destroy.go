package ec2

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Destroy implements [vm.Provider]. It returns when the machine is shutting down, which cannot be
// reversed and costs nothing. EC2 removes its volumes, addresses and interfaces with it.
func (p *ec2Provider) Destroy(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CreateTimeout)
	defer cancel()
	found, err := p.appeared(ctx, id)
	if err != nil {
		return fmt.Errorf("destroy machine %s: %w", id, err)
	}
	var errs []error
	for n := range found {
		if ending(&found[n]) {
			continue
		}
		if err := p.terminate(ctx, id, &found[n]); err != nil {
			errs = append(errs, fmt.Errorf("destroy machine %s: %w", id, err))
		}
	}
	if len(found) == 0 || len(errs) > 0 {
		return errors.Join(errs...)
	}
	// EC2 may show the old state for a while. A later List must not return the machine.
	err = p.await(ctx, p.cfg.CreateTimeout, id, func(found []types.Instance) (bool, error) {
		for n := range found {
			if !ending(&found[n]) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the end of machine %s: %w", id, err)
	}
	return nil
}

// appeared returns the instances of an id. It waits for Settle before it reports that there is
// none, because EC2 shows a new instance with a delay.
func (p *ec2Provider) appeared(ctx context.Context, id string) ([]types.Instance, error) {
	var all []types.Instance
	looked := false
	err := p.await(ctx, p.cfg.Settle, id, func(found []types.Instance) (bool, error) {
		all, looked = found, true
		return len(found) > 0, nil
	})
	if err != nil && errors.Is(err, errTimeout) && looked {
		return nil, nil
	}
	return all, err
}

func (p *ec2Provider) terminate(ctx context.Context, id string, i *types.Instance) error {
	if err := p.bindVolumes(ctx, id, i); err != nil {
		return err
	}
	err := p.call(ctx, func(ctx context.Context) error {
		_, err := p.cfg.Client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{aws.ToString(i.InstanceId)}}, retryPolicy)
		return err
	})
	// An instance that is listed but unknown was just created or removed: retry.
	if err != nil {
		return fmt.Errorf("terminate %s: %w", aws.ToString(i.InstanceId), err)
	}
	return nil
}

// bindVolumes makes EC2 delete a machine's own volumes with it, even if its image or template
// keeps them. It ignores volumes that a user attached later.
func (p *ec2Provider) bindVolumes(ctx context.Context, id string, i *types.Instance) error {
	staying := map[string]string{} // device by volume
	for _, m := range i.BlockDeviceMappings {
		if m.Ebs != nil && !aws.ToBool(m.Ebs.DeleteOnTermination) {
			staying[aws.ToString(m.Ebs.VolumeId)] = aws.ToString(m.DeviceName)
		}
	}
	if len(staying) == 0 {
		return nil
	}
	in := &ec2.ModifyInstanceAttributeInput{InstanceId: i.InstanceId}
	ask := &ec2.DescribeVolumesInput{Filters: []types.Filter{filter("tag:"+tagID, id)}}
	for pages := ec2.NewDescribeVolumesPaginator(p.cfg.Client, ask); pages.HasMorePages(); {
		var page *ec2.DescribeVolumesOutput
		err := p.call(ctx, func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx, retryPolicy)
			return err
		})
		if err != nil {
			return fmt.Errorf("describe the volumes of %s: %w", aws.ToString(i.InstanceId), err)
		}
		for _, v := range page.Volumes {
			if name, ok := staying[aws.ToString(v.VolumeId)]; ok {
				in.BlockDeviceMappings = append(in.BlockDeviceMappings, types.InstanceBlockDeviceMappingSpecification{
					DeviceName: aws.String(name),
					Ebs:        &types.EbsInstanceBlockDeviceSpecification{DeleteOnTermination: aws.Bool(true), VolumeId: v.VolumeId},
				})
			}
		}
	}
	if len(in.BlockDeviceMappings) == 0 {
		return nil
	}
	err := p.call(ctx, func(ctx context.Context) error {
		_, err := p.cfg.Client.ModifyInstanceAttribute(ctx, in, retryPolicy)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete the volumes of %s with it: %w", aws.ToString(i.InstanceId), err)
	}
	return nil
}

func state(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return types.InstanceStateNamePending
	}
	return i.State.Name
}

// ending reports whether a machine is shutting down or terminated.
func ending(i *types.Instance) bool {
	return state(i) == types.InstanceStateNameShuttingDown || state(i) == types.InstanceStateNameTerminated
}

// reason returns EC2's reason for a machine's end.
func reason(i *types.Instance) string {
	if r := i.StateReason; r != nil && aws.ToString(r.Message) != "" {
		return strings.TrimSpace(aws.ToString(r.Message))
	}
	return "EC2 gives no reason"
}

func tag(i *types.Instance, key string) string {
	for _, t := range i.Tags {
		if aws.ToString(t.Key) == key {
			return aws.ToString(t.Value)
		}
	}
	return ""
}
