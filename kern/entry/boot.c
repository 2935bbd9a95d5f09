/*
 * Start of a vCPU in kern.
 */
#include "base/cpu.h"
#include "base/exit.h"
#include "base/kern.h"
#include "base/state.h"
#include "guest_ram.h"
#include "mm/brk.h"
#include "pager/pager.h"
#include "paging/cleaner.h"
#include "space/account.h"

static struct notices notices;

static void boot_once(void)
{
        pager_init(&pager, (struct frame *)control.frame_table, (uint32_t)control.nframes,
                   frame_pfn0());
        pager.blind = control.shadow_paging;
        pager.notices.table = &notices;
        control.notices = (uint64_t)&notices;
        control.frames_of[FRAMES_FREE] = (uint64_t)&pager.nfree;
        control.frames_of[FRAMES_HOT] = (uint64_t)&pager.nhot;
        control.frames_of[FRAMES_TO_BE_COLD] = (uint64_t)&pager.target;
        mm_account_init();
        vma_init();
        mm_brk_init();
}

/* vCPU 0 is the program's first and starts before all others.  It starts again when its first
 * thread has ended and another thread gets it.  Returning means entering the program. */
void kern_start(void);
void kern_start(void)
{
        static bool booted;
        if (vcpu_self_fixed.role == ROLE_SERVICE)
                cleaner_main();
        if (!booted) {
                booted = true;
                boot_once();
        }
        pager_share(&pager, control.nvcpus);
        cpu_set_fs(vcpu_self_fixed.fs_base);
        cpu_set_gs(vcpu_self_fixed.gs_base);
        vmexit(EXIT_READY, cpu_tsc(), 0, 0);
}
